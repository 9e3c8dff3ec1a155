"""manifests/base on a real API server: the scheduler runs as its ServiceAccount, with exactly the rights it uses."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from e2e.api import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEVICE_CLASSES,
    EVENTS,
    PODS,
    PRIORITY_CLASSES,
    SERVICE_ACCOUNTS,
    Api,
    Object,
    Resource,
)
from e2e.controlplane import ControlPlane, build
from e2e.controlplane.fixtures import make_api
from e2e.device_cluster import device_cluster
from e2e.driver import PretendedDriver, add_node
from e2e.objects import claim_template, device, device_class, exactly, pod
from e2e.provisioner import PERSISTENT_VOLUMES, STORAGE_CLASSES, VOLUME_CLAIMS, late_class, volume, volume_claim
from e2e.scheduler import SchedulerProcess, condition
from e2e.spaced import allocated_spaced, spaced_claim
from e2e.suites.test_gangs import GATES, RUNTIME, apply_overlay, gang
from e2e.suites.test_gangs import told as group_told
from e2e.waiting import eventually
from scheduler.api.kinds import POD, RESOURCE_CLAIM, convert
from scheduler.api.podgroups import POD_GROUP
from scheduler.api.resource import (
    AllocationResult,
    ConsumerReference,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from scheduler.api.storage import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, ClaimReference
from scheduler.api.versions import ResourceKinds
from scheduler.app.service import watched_kinds
from scheduler.dra.extended import special_claim
from scheduler.edge.auth import Authorizer
from scheduler.edge.binder import Binder
from scheduler.edge.claims import ClaimWriter
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import from_kubeconfig
from scheduler.edge.errors import AnswerLost
from scheduler.edge.lister import Lister
from scheduler.edge.pod_claims import PodClaims
from scheduler.edge.volumes import VolumeWriter

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
ACCOUNT = ("dra-scheduler", "dra-scheduler")
USER = "system:serviceaccount:dra-scheduler:dra-scheduler"
CLASS = "gpu.example.com"
NS = "default"
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
FLOW_SCHEMAS = Resource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", namespaced=False)


def apply_base(plane: ControlPlane, folder: str = "base", *flags: str) -> None:
    """`kubectl apply -k manifests/base` as admin; the API server validates every field."""
    kubectl = build.control_plane_binaries() / "kubectl"
    command = [str(kubectl), f"--kubeconfig={plane.kubeconfig_for()}", "apply", "-k", str(MANIFESTS / folder), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr, done.stderr


def base_config() -> dict[str, Any]:
    """The fields of the shipped configuration, without the header that SchedulerProcess adds."""
    config: dict[str, Any] = yaml.safe_load((MANIFESTS / "base/config.yaml").read_text())
    return {key: value for key, value in config.items() if key not in ("apiVersion", "kind")}


def granted(file: str = "base/rbac.yaml") -> set[tuple[str, str]]:
    """(resource.group, verb) of every rule that a file, by default base's, gives to the ServiceAccount."""
    documents = yaml.safe_load_all((MANIFESTS / file).read_text())
    roles = [item for item in documents if item["kind"] in ("Role", "ClusterRole") and "metrics" not in str(item)]
    return {
        (f"{resource}.{group}".rstrip("."), verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def calls(audit: Path) -> Iterator[tuple[tuple[str, str], int]]:
    """((resource.group, verb), HTTP status) of each call of the ServiceAccount in an audit log."""
    for line in audit.read_text().splitlines():
        entry = json.loads(line)
        if entry["user"]["username"] != USER or "objectRef" not in entry:
            continue
        reference = entry["objectRef"]
        resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
        group = reference.get("apiGroup", "")
        yield (f"{resource}.{group}".rstrip("."), entry["verb"]), entry.get("responseStatus", {}).get("code", 0)


async def small_cluster(api: Api) -> None:
    """Two nodes with one device each, and templates that ask for one and for two on one node."""
    await api.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
    for name in ("node-0", "node-1"):
        await add_gpu_node(api, name)
    await api.create(CLAIM_TEMPLATES, claim_template("one-gpu", exactly(CLASS)), NS)
    await api.create(CLAIM_TEMPLATES, claim_template("two-gpus", exactly(CLASS, count=2)), NS)


async def add_gpu_node(api: Api, name: str) -> None:
    """A node with one device."""
    await add_node(api, name)
    await PretendedDriver(api, CLASS).publish_node(name, 1)


async def bound(api: Api, name: str) -> bool:
    """Whether the Pod has a node."""
    return bool((await api.get(PODS, name, NS))["spec"].get("nodeName"))


async def use_every_ordinary_right(api: Api) -> None:
    """A Pod that gets a device, and one that never fits and is tried twice: condition, event, series of events."""
    await api.create(PODS, pod("fits", templates={"gpu": "one-gpu"}), NS)
    await eventually(lambda: bound(api, "fits"), "the Pod with a claim is bound")
    await api.create(PODS, pod("too-big", templates={"gpu": "two-gpus"}), NS)

    async def told() -> bool:
        return condition(await api.get(PODS, "too-big", NS)).get("reason") == "Unschedulable"

    await eventually(told, "the Pod that does not fit is told so")
    numbers = iter(range(1000))

    async def repeated() -> bool:
        await add_gpu_node(api, f"later-{next(numbers)}")  # new devices wake the Pod, which fails again
        await asyncio.sleep(1.0)
        return any(event.get("series") for event in await api.list(EVENTS, NS))

    await eventually(repeated, "the second failure is counted in the Event of the first", timeout_s=40)
    await preempt(api)


async def preempt(api: Api) -> None:
    """A Pod that has to go for a more important one."""
    await add_node(api, "tiny", cpu="1")
    await api.create(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    there: Object = {"requests": {"cpu": "1"}, "nodeSelector": {"kubernetes.io/hostname": "tiny"}}
    await api.create(PODS, pod("goes", terminationGracePeriodSeconds=0, **there), NS)
    await eventually(lambda: bound(api, "goes"), "the Pod that will go is bound")
    await api.create(PODS, pod("comes", priorityClassName="urgent", **there), NS)
    await eventually(lambda: bound(api, "comes"), "the more important Pod has its place")


async def use_every_rare_right(plane: ControlPlane, api: Api, kubeconfig: Path) -> None:
    """Reading back after conflicts, claims of our own, and who may see /metrics, through the scheduler's own edge."""
    await api.create(SERVICE_ACCOUNTS, {"metadata": {"name": "prometheus"}}, NS)
    token = await asyncio.to_thread(plane.service_account_token, NS, "prometheus")
    async with ApiClient(await from_kubeconfig(str(kubeconfig))) as client:
        for kind in watched_kinds(ResourceKinds()):
            await Lister(client, kind, {}).list_raw()  # a server that lists no kind by a watch, and every comparison
        assert await Authorizer(client).verdict("nonsense", "/metrics") == "unauthenticated"
        assert await Authorizer(client).verdict(token, "/metrics") == "forbidden"
        await api.create(CLUSTER_ROLE_BINDINGS, _reader_binding())

        async def allowed() -> bool:
            return await Authorizer(client).verdict(token, "/metrics") == "allowed"

        await eventually(allowed, "the ClusterRole for readers of metrics opens /metrics")
        found = convert(POD, await api.get(PODS, "fits", NS))
        await Binder(client).bind(found, found.spec.nodeName)  # a conflict: it is bound already
        (data,) = (claim for claim in await api.list(CLAIMS, NS) if "allocation" in claim.get("status", {}))
        old = convert(RESOURCE_CLAIM, data)
        await api.patch(CLAIMS, old.metadata.name, {"metadata": {"labels": {"newer": "yes"}}}, NS)
        waiting = convert(POD, await api.get(PODS, "too-big", NS))
        consumer = ConsumerReference(resource="pods", name=waiting.metadata.name, uid=waiting.uid)
        kept = await ClaimWriter(client).reserve(old, consumer)
        assert kept.reserved_for(waiting.uid)
        await _bind_volumes(api, client)
        spaced = await spaced_claim(api, "spaced", NS, CLASS)
        await ClaimWriter(client).release(await _protected(client, spaced))
        shared = convert(RESOURCE_CLAIM, await _shared(api))
        assert (await ClaimWriter(client).reserve(shared, consumer)).reserved_for(waiting.uid)
        own = PodClaims(client, ClaimWriter(client))
        await own.delete(await own.create(special_claim(waiting, "temporary")))


async def _protected(client: ApiClient, stored: Object) -> ResourceClaim:
    """The claim allocated by us, finalizer first."""
    result = DeviceRequestAllocationResult(request="gpu", driver=CLASS, pool="node-0", device="gpu-0")
    allocation = AllocationResult(DeviceAllocationResult((result,)))
    holder = ConsumerReference(resource="pods", name="somebody", uid="uid-of-somebody")
    return await ClaimWriter(client).allocate(convert(RESOURCE_CLAIM, stored), allocation, holder)


async def _shared(api: Api) -> Object:
    """A claim that a scheduler which speaks protobuf has allocated."""
    holder = {"resource": "pods", "name": "somebody", "uid": "uid-of-somebody"}
    stored = await spaced_claim(api, "shared", NS, CLASS)
    return await allocated_spaced(api, stored, CLASS, "node-0", "gpu-1", holder)


async def _bind_volumes(api: Api, client: ApiClient) -> None:
    """A volume is promised and a node chosen, each read back because the answer was lost."""
    await api.create(STORAGE_CLASSES, late_class("late", "csi.example.com"))
    volume_data = await api.create(PERSISTENT_VOLUMES, volume("right", "late", node="node-0"))
    claim = convert(PERSISTENT_VOLUME_CLAIM, await api.create(VOLUME_CLAIMS, volume_claim("data", "late"), NS))
    stored = convert(PERSISTENT_VOLUME, volume_data)
    reference = ClaimReference("PersistentVolumeClaim", "v1", NS, claim.metadata.name, claim.metadata.uid)
    promised = msgspec.structs.replace(stored, spec=msgspec.structs.replace(stored.spec, claimRef=reference))
    writer = VolumeWriter(_Deaf(client))  # type: ignore[arg-type]  # an ApiClient that loses the answers to writes
    assert (await writer.bind_volume(promised)).kept_for(claim)
    assert (await writer.select_node(claim, "node-0")).selected_node == "node-0"


class _Deaf:
    """Sends everything and loses the answers to writes."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def call(self, method: str, *rest: Any) -> Any:
        answer = await self._client.call(method, *rest)
        if method == "PATCH":
            raise AnswerLost("the connection broke")
        return answer


def _reader_binding() -> Object:
    return {
        "metadata": {"name": "prometheus"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "dra-scheduler-metrics-reader",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": NS}],
    }


async def test_every_call_is_allowed_and_every_right_is_used(
    own_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    """As the ServiceAccount of base nothing is forbidden, and the audit log shows each rule in use: one less and a
    call that was made here would fail.
    """
    flags, audit = _audited(tmp_path)
    plane = await asyncio.to_thread(own_control_plane, apiserver_arguments=flags)
    await asyncio.to_thread(apply_base, plane)
    kubeconfig = plane.kubeconfig_for(service_account=ACCOUNT)
    async with make_api(plane) as api:
        await small_cluster(api)
        scheduler = SchedulerProcess(tmp_path / "scheduler", kubeconfig, config=_with(base_config(), kubeconfig))
        await asyncio.to_thread(scheduler.start_and_wait)
        try:
            await use_every_ordinary_right(api)
            await use_every_rare_right(plane, api, kubeconfig)
        finally:
            await asyncio.to_thread(scheduler.stop)
    seen = list(calls(audit))
    assert [call for call, status in seen if status in (401, 403)] == []
    # Asked for by the API server itself while it serves a write of the status: it never shows as a call.
    synthetic = {("resourceclaims/binding.resource.k8s.io", verb) for verb in ("patch", "update")}
    assert {call for call, _ in seen} | synthetic == granted()


async def test_every_right_of_the_gangs_overlay_is_used_and_no_other_is_missed(
    own_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    """One gang is placed and told so: nothing is forbidden, and what was called of PodGroups is what is granted."""
    flags, audit = _audited(tmp_path)
    plane = await asyncio.to_thread(
        own_control_plane, feature_gates=GATES, runtime_config=RUNTIME, apiserver_arguments=flags
    )
    await asyncio.to_thread(apply_overlay, plane)
    gates = "--feature-gates=" + ",".join(f"{name}=true" for name in GATES)
    kubeconfig = plane.kubeconfig_for(service_account=ACCOUNT)
    async with make_api(plane) as api, device_cluster(api, tmp_path / "scheduler", kubeconfig, [gates]) as cluster:
        await cluster.node("n0", device("gpu-0"), device("gpu-1"))
        await gang(cluster, "team", 2)
        for name in ("team0", "team1"):
            await cluster.pod(name, exactly(CLASS), schedulingGroup={"podGroupName": "team"})
        for name in ("team0", "team1"):
            await cluster.bound(name)
        await group_told(cluster, "team", "True", "Scheduled", "")
        async with ApiClient(await from_kubeconfig(str(kubeconfig))) as client:
            await Lister(client, POD_GROUP, {}).list_raw()
    seen = list(calls(audit))
    assert [call for call, status in seen if status in (401, 403)] == []
    assert {call for call, _ in seen if call[0].startswith("podgroups")} == granted("overlays/gangs/rbac.yaml")


async def test_without_the_binding_right_no_claim_is_written(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The right that shows in no audit log is needed, too, and its absence is told in plain words."""
    await asyncio.to_thread(apply_base, control_plane)
    role = await clean_cluster.get(CLUSTER_ROLES, "dra-scheduler")
    rules = [rule for rule in role["rules"] if rule["resources"] != ["resourceclaims/binding"]]
    assert len(rules) == len(role["rules"]) - 1
    await clean_cluster.patch(CLUSTER_ROLES, "dra-scheduler", {"rules": rules})
    kubeconfig = control_plane.kubeconfig_for(service_account=ACCOUNT)
    await small_cluster(clean_cluster)
    scheduler = SchedulerProcess(tmp_path, kubeconfig, config=_with(base_config(), kubeconfig))
    await asyncio.to_thread(scheduler.start_and_wait)
    try:
        await clean_cluster.create(PODS, pod("fits", templates={"gpu": "one-gpu"}), NS)

        async def told() -> bool:
            events = await clean_cluster.list(EVENTS, NS)
            return any("resourceclaims/binding" in str(event.get("note")) for event in events)

        await eventually(told, "an Event names the missing right")
        assert not await bound(clean_cluster, "fits")
        (claim,) = await clean_cluster.list(CLAIMS, NS)
        assert "allocation" not in claim.get("status", {})
        await asyncio.to_thread(apply_base, control_plane)
        await eventually(lambda: bound(clean_cluster, "fits"), "with the right back the Pod is bound", timeout_s=40)
    finally:
        await asyncio.to_thread(scheduler.stop)


async def test_the_kind_overlay_is_valid(clean_cluster: Api, control_plane: ControlPlane) -> None:
    """The API server would take every object of the overlay as it stands."""
    await asyncio.to_thread(apply_base, control_plane)  # the namespace must exist for a dry run
    await asyncio.to_thread(apply_base, control_plane, "overlays/kind", "--dry-run=server")


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("/api/v1/nodes?limit=1", "dra-scheduler"),
        ("/apis/coordination.k8s.io/v1/namespaces/dra-scheduler/leases/dra-scheduler", "dra-scheduler-leader-election"),
    ],
)
async def test_our_calls_have_a_flow_of_their_own(
    clean_cluster: Api, control_plane: ControlPlane, path: str, schema: str
) -> None:
    """API priority and fairness puts the ServiceAccount's calls into the FlowSchemas of base."""
    await asyncio.to_thread(apply_base, control_plane)
    token = await asyncio.to_thread(control_plane.service_account_token, *ACCOUNT)
    uid = (await clean_cluster.get(FLOW_SCHEMAS, schema))["metadata"]["uid"]

    async def classified() -> bool:
        answer = await as_scheduler.session.get(path)
        return bool(answer.headers.get("X-Kubernetes-PF-FlowSchema-UID") == uid)

    async with Api(control_plane.url, token=token, ca_file=control_plane.ca_file) as as_scheduler:
        await eventually(classified, f"the call is classified by the FlowSchema {schema}")


def _audited(folder: Path) -> tuple[list[str], Path]:
    """Flags of an API server that logs the calls of the ServiceAccount, and where."""
    policy, audit = folder / "policy.yaml", folder / "audit.log"
    policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={audit}"], audit


def _with(config: dict[str, Any], kubeconfig: Path) -> dict[str, Any]:
    return config | {"clientConnection": {"kubeconfig": str(kubeconfig)}}


_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
}
