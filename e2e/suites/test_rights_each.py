"""Each right of manifests/base taken away in turn, on real RBAC: the scheduler's own code fails, naming the right.

test_rights.py shows that a whole run uses every right; here nothing is left but to show that none is given for
convenience: for each (resource, verb) a user without just that one does, with the scheduler's own classes, what needs
it, and is refused; a user with all of them does the same and is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import msgspec
import pytest
import yaml

from e2e.api import CLAIMS, LEASES, PODS, SERVICE_ACCOUNTS, Api, Object
from e2e.cleaning import clean
from e2e.controlplane import ControlPlane
from e2e.controlplane.fixtures import make_api
from e2e.driver import add_node
from e2e.objects import claim, exactly, pod
from e2e.provisioner import PERSISTENT_VOLUMES, STORAGE_CLASSES, VOLUME_CLAIMS, late_class, volume, volume_claim
from e2e.spaced import allocated_spaced, spaced_claim
from e2e.suites.test_rights import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, MANIFESTS, apply_base, granted
from e2e.waiting import eventually
from scheduler.api.bodies import Event, pod_reference
from scheduler.api.core import Pod
from scheduler.api.kinds import POD, RESOURCE_CLAIM, Kind, convert
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
from scheduler.dra.features import Features
from scheduler.edge.auth import Authorizer
from scheduler.edge.binder import Binder
from scheduler.edge.claims import ClaimWriter
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import from_kubeconfig
from scheduler.edge.election import Election, ElectionSettings
from scheduler.edge.errors import AnswerLost
from scheduler.edge.events import EventRecorder
from scheduler.edge.evict import Evictor
from scheduler.edge.leader import LeaseClient
from scheduler.edge.pod_claims import PodClaims
from scheduler.edge.reflector import Reflector
from scheduler.edge.status import StatusWriter
from scheduler.edge.volumes import VolumeWriter
from scheduler.errors import ClusterError
from scheduler.framework.instructions import PreemptionProgress, PreemptPods
from scheduler.state.cluster import ClusterState

NS = "default"
CLASS = "gpu.example.com"
LEASE = "dra-scheduler"
ALL = "rights-all"
Pair = tuple[str, str]


@dataclass
class Kit:
    """What a probe works with: admin's Api to prepare, the client of the user under test, and fresh names."""

    api: Api
    client: ApiClient
    numbers: Iterator[int]

    def name(self) -> str:
        """A name nobody has."""
        return f"probe-{next(self.numbers)}"

    async def pod(self, **spec: Any) -> Pod:
        """A Pod that waits."""
        made: Pod = convert(POD, await self.api.create(PODS, pod(self.name(), **spec), NS))
        return made

    async def claim(self, **metadata: Any) -> ResourceClaim:
        """A claim without devices."""
        body = claim(self.name(), exactly(CLASS))
        body["metadata"] |= metadata
        made: ResourceClaim = convert(RESOURCE_CLAIM, await self.api.create(CLAIMS, body, NS))
        return made

    async def touch(self, item: ResourceClaim) -> None:
        """Somebody else writes the claim."""
        await self.api.patch(CLAIMS, item.metadata.name, {"metadata": {"labels": {"touched": "yes"}}}, NS)

    def deaf(self) -> ApiClient:
        """The client, which loses the answers to its patches."""
        return _Deaf(self.client)  # type: ignore[return-value]  # all that the writers use of it


class _Deaf:
    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def call(self, method: str, *rest: Any) -> Any:
        answer = await self._client.call(method, *rest)
        if method == "PATCH":
            raise AnswerLost("the connection broke")
        return answer


Probe = Callable[[Kit], Awaitable[None]]
"""Does what needs the right; raises ClusterError, or AssertionError with the trouble that was told, without it."""


class _Sink:
    def deliver(self, batch: list[Any], revision: int) -> None:
        """Nobody looks."""


async def follow(kind: Kind, verb: str, kit: Kit) -> None:
    """The copy of a kind is complete (list) and stays current (watch)."""
    troubles: list[str] = []
    # A LIST by a watch needs no right to list: in pages it does, and that is what every gap may fall back to.
    reflector = Reflector(kit.client, kind, _Sink(), on_trouble=troubles.append, by_watch=verb != "list")
    task = asyncio.create_task(reflector.run())
    try:

        async def known() -> bool:
            return bool(troubles) or (reflector.synced.is_set() and (verb == "list" or reflector.counters.watches > 0))

        await eventually(known, f"{kind.name} is followed or refused")
        if verb == "watch" and not troubles:
            await asyncio.sleep(0.2)  # a watch counts once it is asked for; a refusal needs a moment
        assert not troubles, troubles[0]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def bind(kit: Kit) -> None:
    await Binder(kit.client).bind(await kit.pod(), "node-0")


async def read_pod_back(kit: Kit) -> None:
    waiting = await kit.pod()
    await kit.api.bind(NS, waiting.metadata.name, "node-0")
    await Binder(kit.client).bind(waiting, "node-0")  # a conflict: who bound it is read from the Pod


async def told(trouble: list[str], run: Awaitable[Any], done: Callable[[], Awaitable[bool]]) -> None:
    """Run a writer's task until what it writes is there, or it complains."""
    task = asyncio.ensure_future(run)
    try:

        async def ended() -> bool:
            return bool(trouble) or await done()

        await eventually(ended, "the write is done or refused")
        assert not trouble, trouble[0]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def condition(kit: Kit) -> None:
    trouble: list[str] = []
    writer = StatusWriter(kit.client, on_trouble=trouble.append)
    waiting = await kit.pod()
    writer.set_condition(waiting, "Unschedulable", "no room")

    async def there() -> bool:
        return "no room" in str((await kit.api.get(PODS, waiting.metadata.name, NS)).get("status"))

    await told(trouble, writer.run(), there)


async def event(kit: Kit, times: int) -> None:
    trouble: list[str] = []
    recorder = EventRecorder(kit.client, on_trouble=trouble.append)
    regarding = pod_reference(await kit.pod())
    for _ in range(times):
        recorder.record(Event("Warning", "FailedScheduling", "Scheduling", "no", regarding, "dra-scheduler", "here"))

    async def written() -> bool:
        return await recorder.drain(5.0)

    await told(trouble, recorder.run(), written)


class _Reports:
    def preempted(self, victim: Pod, preemptor: Pod, node: str, in_memory: bool) -> None: ...
    def preemption_ended(self, result: str, duration_s: float) -> None: ...
    def preemption_trouble(self, text: str) -> None: ...


async def evict(kit: Kit) -> None:
    async def no(uid: str) -> bool:
        return False

    def ignore(anything: Any) -> None: ...

    evictor = Evictor(kit.client, ClusterState(Features()), _Reports(), withdraw=no, displace=ignore, activate=ignore,
                      clock=lambda: 0.0)  # fmt: skip
    victim, preemptor = await kit.pod(), await kit.pod()
    await evictor._preempt(PreemptPods(preemptor, "node-0", (victim,), (), PreemptionProgress()), victim)
    assert await kit.api.find(PODS, victim.metadata.name, NS) is None


def allocation() -> AllocationResult:
    result = DeviceRequestAllocationResult(request="gpu", driver=CLASS, pool="node-0", device="gpu-0")
    return AllocationResult(DeviceAllocationResult((result,)))


def consumer(name: str = "somebody") -> ConsumerReference:
    return ConsumerReference(resource="pods", name=name, uid=f"uid-of-{name}")


async def finalize(kit: Kit) -> None:
    await ClaimWriter(kit.client).allocate(await kit.claim(), allocation(), consumer())


async def allocate(kit: Kit) -> None:
    protected = await kit.claim(finalizers=["resource.kubernetes.io/delete-protection"])
    await ClaimWriter(kit.client).allocate(protected, allocation(), consumer())


async def finalize_exactly(kit: Kit) -> None:
    stored = await spaced_claim(kit.api, kit.name(), NS, CLASS)
    await ClaimWriter(kit.client).allocate(convert(RESOURCE_CLAIM, stored), allocation(), consumer())


async def reserve_exactly(kit: Kit) -> None:
    first = {"resource": "pods", "name": "first", "uid": "uid-of-first"}
    stored = await spaced_claim(kit.api, kit.name(), NS, CLASS)
    shared = await allocated_spaced(kit.api, stored, CLASS, "node-0", "gpu-0", first)
    await ClaimWriter(kit.client).reserve(convert(RESOURCE_CLAIM, shared), consumer())


async def read_claim_back(kit: Kit) -> None:
    item = await kit.claim()
    await kit.touch(item)
    await ClaimWriter(kit.client).allocate(item, allocation(), consumer())


async def make_claim(kit: Kit) -> None:
    await PodClaims(kit.client, ClaimWriter(kit.client)).create(special_claim(await kit.pod(), "temporary"))


async def delete_claim(kit: Kit) -> None:
    await PodClaims(kit.client, ClaimWriter(kit.client)).delete(await kit.claim())


async def bind_volume(kit: Kit, *, deaf: bool = False) -> None:
    name = kit.name()
    data = await kit.api.create(PERSISTENT_VOLUMES, volume(name, "late", node="node-0"))
    wanted = convert(PERSISTENT_VOLUME_CLAIM, await kit.api.create(VOLUME_CLAIMS, volume_claim(name, "late"), NS))
    stored = convert(PERSISTENT_VOLUME, data)
    reference = ClaimReference("PersistentVolumeClaim", "v1", NS, name, wanted.metadata.uid)
    promised = msgspec.structs.replace(stored, spec=msgspec.structs.replace(stored.spec, claimRef=reference))
    await VolumeWriter(kit.deaf() if deaf else kit.client).bind_volume(promised)


async def select_node(kit: Kit, *, deaf: bool = False) -> None:
    data = await kit.api.create(VOLUME_CLAIMS, volume_claim(kit.name(), "late"), NS)
    wanted = convert(PERSISTENT_VOLUME_CLAIM, data)
    await VolumeWriter(kit.deaf() if deaf else kit.client).select_node(wanted, "node-0")


async def authorize(kit: Kit) -> None:
    token = (await kit.api.request("POST", SERVICE_ACCOUNTS.path(NS, "prober", "token"), {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600},
    }))["status"]["token"]  # fmt: skip
    verdict = await Authorizer(kit.client).verdict(token, "/metrics")
    assert verdict == "forbidden", f"nobody can be let in: {verdict}"


async def lease(kit: Kit, verb: str) -> None:
    settings = ElectionSettings(identity=kit.name(), namespace=LEASE, name=LEASE)
    if verb == "create":
        await kit.api.delete(LEASES, LEASE, LEASE, missing_ok=True)
    elif await kit.api.find(LEASES, LEASE, LEASE) is None:
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1}
        await kit.api.create(LEASES, {"metadata": {"name": LEASE}, "spec": spec}, LEASE)

    def take() -> None:
        client, election = LeaseClient(kit.client.access, settings, 5.0), Election(settings)
        try:
            election.observed(client.read(), 0.0)
            write = election.next_write(1000.0, "2026-11-30T00:00:00.000000Z")
            assert write is not None
            client.write(write)
        finally:
            client.close()

    await asyncio.to_thread(take)


def probes() -> dict[Pair, Probe]:
    """(resource.group, verb) → what needs it."""
    made: dict[Pair, Probe] = {
        ("pods", "get"): read_pod_back,
        ("pods/binding", "create"): bind,
        ("pods/status", "patch"): condition,
        ("pods", "delete"): evict,
        ("persistentvolumes", "patch"): bind_volume,
        ("persistentvolumes", "get"): partial(bind_volume, deaf=True),
        ("persistentvolumeclaims", "patch"): select_node,
        ("persistentvolumeclaims", "get"): partial(select_node, deaf=True),
        ("resourceclaims.resource.k8s.io", "patch"): finalize,
        ("resourceclaims.resource.k8s.io", "update"): finalize_exactly,
        ("resourceclaims.resource.k8s.io", "get"): read_claim_back,
        ("resourceclaims.resource.k8s.io", "create"): make_claim,
        ("resourceclaims.resource.k8s.io", "delete"): delete_claim,
        ("resourceclaims/status.resource.k8s.io", "patch"): allocate,
        ("resourceclaims/binding.resource.k8s.io", "patch"): allocate,
        ("resourceclaims/status.resource.k8s.io", "update"): reserve_exactly,
        ("resourceclaims/binding.resource.k8s.io", "update"): reserve_exactly,
        ("events.events.k8s.io", "create"): partial(event, times=1),
        ("events.events.k8s.io", "patch"): partial(event, times=2),
        ("tokenreviews.authentication.k8s.io", "create"): authorize,
        ("subjectaccessreviews.authorization.k8s.io", "create"): authorize,
    }
    for verb in ("get", "create", "patch"):
        made["leases.coordination.k8s.io", verb] = partial(lease, verb=verb)
    for kind in watched_kinds(ResourceKinds()):
        for verb in ("list", "watch"):
            made[kind.resource, verb] = partial(follow, kind, verb)
    return made


def rules(left_out: Pair | None) -> list[Object]:
    """Every right of the manifests but one, as a rule of its own each."""
    found = []
    for resource, verb in sorted(granted()):
        if (resource, verb) != left_out:
            name, _, group = resource.partition(".")
            found.append({"apiGroups": [group], "resources": [name], "verbs": [verb]})
    return found


def user_without(pair: Pair) -> str:
    """The user who has all rights but this one."""
    return f"rights-without-{pair[1]}-{pair[0].replace('/', '-')}"


async def grant(api: Api, user: str, allowed: list[Object]) -> None:
    """A ClusterRole of the user's own."""
    await api.create(CLUSTER_ROLES, {"metadata": {"name": user}, "rules": allowed})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    body = {"metadata": {"name": user}, "roleRef": reference, "subjects": [subject]}
    await api.create(CLUSTER_ROLE_BINDINGS, body)


async def permitted(api: Api, user: str, number: int) -> None:
    """Wait until the authorizer knows all rights of the user: the last rule in its list is in force."""
    resource, verb = sorted(granted())[-1]
    if number == len(granted()):
        resource, verb = sorted(granted())[-2]
    name, _, group = resource.partition(".")
    name, _, subresource = name.partition("/")
    attributes = {"group": group, "resource": name, "subresource": subresource, "verb": verb, "namespace": NS}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes}}  # fmt: skip

    async def known() -> bool:
        answer = await api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        return bool(answer["status"]["allowed"])

    await eventually(known, f"the rights of {user} are in force")


@asynccontextmanager
async def client_of(plane: ControlPlane, user: str) -> AsyncIterator[ApiClient]:
    """The scheduler's client under a certificate of the user."""
    kubeconfig = await asyncio.to_thread(plane.kubeconfig_for, user)
    async with ApiClient(await from_kubeconfig(str(kubeconfig))) as client:
        yield client


async def failure(probe: Probe, kit: Kit) -> str:
    """What went wrong, "" when nothing did."""
    try:
        await probe(kit)
    except (ClusterError, AssertionError) as error:
        return str(error) or type(error).__name__
    return ""


def missed(pair: Pair, told: str) -> bool:
    """Whether what was told names the right; "unavailable" when the API server may not be asked about a caller."""
    named = "forbidden" in told and pair[0].partition(".")[0] in told
    return named or told.startswith("nobody can be let in: unavailable")


def test_there_is_a_probe_for_every_right() -> None:
    """A right without a probe fails here, and so does a probe for a right that is not given."""
    assert set(probes()) == granted()


async def test_no_right_can_be_taken_away(control_plane: ControlPlane) -> None:
    """Without it the scheduler's own code fails and names the right; with all of them everything works."""
    control_plane.stop_kube_scheduler()
    numbers = count()
    wrong: list[str] = []
    async with make_api(control_plane) as api:
        await clean(api)
        await asyncio.to_thread(apply_base, control_plane)  # for its namespace
        await _prepare(api)
        pairs = sorted(granted())
        try:
            await grant(api, ALL, rules(None))
            await asyncio.gather(*(grant(api, user_without(pair), rules(pair)) for pair in pairs))
            await permitted(api, ALL, 0)
            for number, pair in enumerate(pairs, 1):
                await permitted(api, user_without(pair), number)
            async with client_of(control_plane, ALL) as everything:
                for pair in pairs:
                    probe = probes()[pair]
                    async with client_of(control_plane, user_without(pair)) as less:
                        without = await failure(probe, Kit(api, less, numbers))
                    if not missed(pair, without):
                        wrong.append(f"without {pair[1]} {pair[0]}: {without or 'nothing failed'}")
                    with_all = await failure(probe, Kit(api, everything, numbers))
                    if with_all:
                        wrong.append(f"with all rights, {pair[1]} {pair[0]}: {with_all}")
        finally:
            for user in (ALL, *map(user_without, pairs)):
                for resource in (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES):
                    await api.delete(resource, user, missing_ok=True)
            await clean(api)
    assert wrong == []
    print(f"{len(pairs)} rights taken away in turn, each is missed")


async def _prepare(api: Api) -> None:
    if await api.find(SERVICE_ACCOUNTS, "prober", NS) is None:
        await api.create(SERVICE_ACCOUNTS, {"metadata": {"name": "prober"}}, NS)
    if await api.find(STORAGE_CLASSES, "late") is None:
        await api.create(STORAGE_CLASSES, late_class("late", "csi.example.com"))
    await add_node(api, "node-0")


@pytest.mark.parametrize("file", ["base/rbac.yaml", "overlays/gangs/rbac.yaml"])
def test_no_rule_is_a_wildcard(file: str) -> None:
    """No ``*`` anywhere, and secrets are nowhere read."""
    for document in yaml.safe_load_all((MANIFESTS / file).read_text()):
        for rule in document.get("rules", []):
            assert "*" not in str(rule)
            assert "secrets" not in rule.get("resources", [])
            assert not set(rule["verbs"]) & {"escalate", "bind", "impersonate", "deletecollection"}
