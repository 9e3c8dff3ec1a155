"""The HTTPS port against strangers, credentials that change, and secrets that must not be seen anywhere."""

from __future__ import annotations

import asyncio
import base64
import gzip
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from e2e.api import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEVICE_CLASSES,
    EVENTS,
    LEASES,
    PODS,
    SERVICE_ACCOUNTS,
    Api,
    ApiError,
    Object,
)
from e2e.controlplane import ControlPlane
from e2e.driver import PretendedDriver, add_node
from e2e.objects import claim_template, device_class, exactly, pod
from e2e.proxy import CuttingProxy, port_of
from e2e.scheduler import SchedulerProcess
from e2e.suites.test_devices import CLASS, NS, bound_are, create_pods, is_bound
from e2e.suites.test_rights import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from e2e.waiting import eventually

OPEN = ("/livez", "/readyz", "/healthz")
CLOSED = ("/metrics", "/metrics/resources", "/metrics/slis", "/configz", "/statusz", "/flagz", "/debug/flags/v")
READER = "metrics-reader"
FOREIGN = "a-token-of-another-cluster-3f9c1d"


async def ask(scheduler: SchedulerProcess, path: str, token: str = "", method: str = "GET") -> tuple[int, str]:
    """HTTP status and body."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    context = ssl._create_unverified_context()  # its certificate is its own business here
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, scheduler.url + path, headers=headers, ssl=context) as answer,
    ):
        return answer.status, await answer.text()


@pytest.fixture
async def reader(clean_cluster: Api, control_plane: ControlPlane) -> AsyncIterator[str]:
    """The token of an account that may get /metrics and nothing else."""
    await clean_cluster.create(SERVICE_ACCOUNTS, {"metadata": {"name": READER}}, NS)
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    await clean_cluster.create(CLUSTER_ROLES, {"metadata": {"name": READER}, "rules": rules})
    await clean_cluster.create(CLUSTER_ROLE_BINDINGS, binding(READER, READER))
    yield await asyncio.to_thread(control_plane.service_account_token, NS, READER)
    for resource, namespace in ((CLUSTER_ROLE_BINDINGS, None), (CLUSTER_ROLES, None), (SERVICE_ACCOUNTS, NS)):
        await clean_cluster.delete(resource, READER, namespace, missing_ok=True)


def binding(role: str, account: str) -> Object:
    """A ClusterRoleBinding of a ServiceAccount."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NS}
    return {"metadata": {"name": account}, "roleRef": reference, "subjects": [subject]}


async def test_strangers_are_refused(control_plane: ControlPlane, tmp_path: Path, reader: str) -> None:
    """Without token, with one of another cluster, with one that may do something else, in plain HTTP: nothing is told.
    Health stays open, and whoever may read /metrics reads it.
    """
    scheduler = SchedulerProcess(tmp_path, control_plane.kubeconfig_for(), trust_loopback=False)
    await asyncio.to_thread(scheduler.start_and_wait)
    try:
        for path in OPEN:
            assert await ask(scheduler, path) == (200, "ok")
        for path in CLOSED:
            method = "PUT" if path.startswith("/debug") else "GET"
            assert await ask(scheduler, path, method=method) == (401, "Unauthorized\n"), path
            assert await ask(scheduler, path, FOREIGN, method) == (401, "Unauthorized\n"), path
            expected = 200 if path == "/metrics" else 403
            assert (await ask(scheduler, path, reader, method))[0] == expected, path
        assert "scheduler_pending_pods" in (await ask(scheduler, "/metrics", reader))[1]
        # Neither a token in the URL nor another scheme gets anybody in.
        assert (await ask(scheduler, f"/metrics?token={reader}"))[0] == 401
        for request in (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /livez HTTP/1.0\r\n\r\n", b"\x00" * 64):
            assert b"200" not in await asyncio.to_thread(plain, scheduler.port, request)
        assert (await ask(scheduler, "/livez"))[0] == 200
    finally:
        await asyncio.to_thread(scheduler.stop)
    assert "Traceback" not in scheduler.log()


def plain(port: int, request: bytes) -> bytes:
    """What a request without TLS is answered."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(request)
        answer = b""
        try:
            while chunk := connection.recv(4096):
                answer += chunk
        except (ConnectionError, TimeoutError):
            pass
    return answer


async def test_who_cannot_be_asked_about_lets_nobody_in(
    control_plane: ControlPlane, tmp_path: Path, reader: str
) -> None:
    """While the API server does not answer, a good token is not enough; health still answers."""
    original = control_plane.kubeconfig_for()
    async with CuttingProxy(port_of(yaml.safe_load(original.read_text()))) as proxy:
        scheduler = SchedulerProcess(tmp_path, proxy.kubeconfig(original, tmp_path), trust_loopback=False)
        await asyncio.to_thread(scheduler.start_and_wait)
        try:
            proxy.stall()
            assert await ask(scheduler, "/metrics", reader) == (503, "the API server could not be asked\n")
            assert (await ask(scheduler, "/livez"))[0] == 200
            proxy.flow()

            async def let_in() -> bool:
                return (await ask(scheduler, "/metrics", reader))[0] == 200

            await eventually(let_in, "the API server answers again", timeout_s=30, interval_s=0.3)
        finally:
            proxy.flow()
            await asyncio.to_thread(scheduler.stop)


async def small_cluster(api: Api, devices: int) -> None:
    """One node with devices and a template."""
    await api.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
    await add_node(api, "node-0")
    await PretendedDriver(api, CLASS).publish_node("node-0", devices)
    await api.create(CLAIM_TEMPLATES, claim_template("one-gpu", exactly(CLASS)), NS)


async def test_a_token_that_changes_is_read_again(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """As the kubelet rotates it: the old token stops working, the file has a new one, the scheduler goes on."""
    api, account = clean_cluster, "rotating"
    file, kubeconfig = tmp_path / "token", tmp_path / "kubeconfig"

    async def issue() -> None:
        await api.create(SERVICE_ACCOUNTS, {"metadata": {"name": account}}, NS)
        file.write_text(await asyncio.to_thread(control_plane.service_account_token, NS, account))

    document = yaml.safe_load(control_plane.kubeconfig_for().read_text())
    document["users"][0]["user"] = {"tokenFile": str(file)}
    kubeconfig.write_text(yaml.safe_dump(document))
    await small_cluster(api, 2)
    try:
        await api.create(CLUSTER_ROLE_BINDINGS, binding("cluster-admin", account))
        await issue()
        old = file.read_text()
        with SchedulerProcess(tmp_path, kubeconfig):
            await create_pods(api, ["first"], templates={"gpu": "one-gpu"})
            await eventually(is_bound(api, "first"), "the first Pod is bound with the first token")
            await api.delete(SERVICE_ACCOUNTS, account, NS)
            await issue()
            assert file.read_text() != old
            async with Api(control_plane.url, token=old, ca_file=control_plane.ca_file) as stranger:
                await eventually(lambda: refused(stranger), "the old token is refused", timeout_s=40, interval_s=0.3)
            await create_pods(api, ["second"], templates={"gpu": "one-gpu"})
            await eventually(is_bound(api, "second"), "the second Pod is bound with the new token", timeout_s=60)
    finally:
        await api.delete(CLUSTER_ROLE_BINDINGS, account, missing_ok=True)
        await api.delete(SERVICE_ACCOUNTS, account, NS, missing_ok=True)


async def refused(api: Api) -> bool:
    """Whether the API server does not know the caller."""
    try:
        await api.list(PODS, NS)
    except ApiError as error:
        return error.status == 401
    return False


def pieces(text: str, length: int = 24) -> list[str]:
    """Parts of a secret that nobody writes by chance: of PEM and base64 the inner lines, of a token its signature."""
    lines = [line for line in text.splitlines() if "-----" not in line and len(line) >= length]
    return [line[index : index + length] for line in lines for index in range(0, len(line) - length + 1, length)]


class Secrets:
    """What must be seen nowhere: name → parts."""

    def __init__(self) -> None:
        self.parts: dict[str, list[str]] = {}

    def add(self, name: str, *spellings: str) -> None:
        """A secret, in each of its spellings."""
        self.parts[name] = [part for text in spellings for part in pieces(text)]
        assert self.parts[name], name

    def add_token(self, name: str, token: str) -> None:
        """Header and payload of a JWT are no secret; its signature is."""
        self.add(name, token.rpartition(".")[2])

    def seen_in(self, content: bytes) -> list[str]:
        """Names of the secrets that a content gives away."""
        text = content.decode(errors="replace")
        return [name for name, parts in self.parts.items() if any(part in text for part in parts)]


async def test_no_secret_is_seen_anywhere(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path, reader: str
) -> None:
    """At the highest verbosity, with a broken API server, refused callers and a broken extender: no token, no private
    key, no extender's password and no Pod's environment in log, endpoints, Events, conditions, Lease, audit trail or
    recording.
    """
    secrets = Secrets()
    certificate, key = await asyncio.to_thread(control_plane.serving_files, "secrets")
    secrets.add("serving key", key.read_text())
    original = control_plane.kubeconfig_for("secret-user", groups=["system:masters"])
    document = yaml.safe_load(original.read_text())
    user = document["users"][0]["user"]
    user_key = user["client-key-data"]
    secrets.add("client key", base64.b64decode(user_key).decode(), user_key)
    secrets.add_token("caller's token", reader)
    secrets.add("foreign token", FOREIGN)
    secrets.add("environment", "the-password-in-the-environment-8a61")
    extender: dict[str, Any] = {
        "urlPrefix": "https://127.0.0.1:9/", "filterVerb": "filter", "ignorable": True, "enableHTTPS": True,
        "managedResources": [{"name": "example.com/nothing"}],
        "tlsConfig": {"certData": base64.b64encode(certificate.read_bytes()).decode(),
                      "keyData": base64.b64encode(key.read_bytes()).decode()},
    }  # fmt: skip
    secrets.add("extender's key", extender["tlsConfig"]["keyData"])
    # Not ignorable and asked about every Pod of its resource: its failure is told on the Pod.
    password = "the-password-of-the-extender-5d07"
    guarded: dict[str, Any] = {
        "urlPrefix": f"http://user:{password}@127.0.0.1:9/", "filterVerb": "filter",
        "managedResources": [{"name": "example.com/guarded", "ignoredByScheduler": True}],
    }  # fmt: skip
    secrets.add("extender's password", password)
    # The judge itself: where they do stand, they are seen.
    given = str([extender, guarded]).encode() + original.read_bytes() + reader.encode() + key.read_bytes()
    judged = {"client key", "caller's token", "extender's key", "extender's password", "serving key"}
    assert judged <= set(secrets.seen_in(given))
    await small_cluster(clean_cluster, 2)
    trail, recording = tmp_path / "audit" / "trail.db", tmp_path / "recording"
    for folder in (trail.parent, recording):
        folder.mkdir()
    async with CuttingProxy(port_of(document)) as proxy:
        kubeconfig = proxy.kubeconfig(original, tmp_path)
        config = {"extenders": [extender, guarded], "leaderElection": {"leaderElect": True, "resourceNamespace": NS}}
        scheduler = SchedulerProcess(tmp_path / "run", kubeconfig, config=config, trust_loopback=False, arguments=[
            "-v=10", f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}",
            f"--audit-file={trail}", f"--record={recording}",
        ])  # fmt: skip
        await asyncio.to_thread(scheduler.start_and_wait)
        try:
            await with_faults(clean_cluster, proxy, scheduler, reader)
            await told_of_the_extender(clean_cluster)
            pages = {path: await ask(scheduler, path, reader) for path in (*OPEN, *CLOSED)}
            pages |= {f"{path} as admin": await ask(scheduler, path, admin_token(control_plane)) for path in CLOSED}
            assert pages["/configz as admin"][0] == 200
        finally:
            await asyncio.to_thread(scheduler.stop)
    stored = {resource.plural: await clean_cluster.list(resource) for resource in (EVENTS, CLAIMS, LEASES)}
    stored["conditions"] = [item["status"] for item in await clean_cluster.list(PODS)]
    places = {name: body.encode() for name, (_, body) in pages.items()}
    places |= {name: str(items).encode() for name, items in stored.items()}
    places["log"] = scheduler.log_file.read_bytes()
    for folder in (trail.parent, recording):
        places |= {str(file.relative_to(tmp_path)): content(file) for file in folder.rglob("*") if file.is_file()}
    assert len(places["log"]) > 10_000
    assert any("trail" in name for name in places)
    assert any("recording" in name for name in places)
    seen = {name: found for name, body in places.items() if (found := secrets.seen_in(body))}
    assert seen == {}


async def told_of_the_extender(api: Api) -> None:
    """A Pod that the extender with a password has to be asked about, until its condition names the extender."""
    wanted = {"example.com/guarded": "1"}
    await api.create(PODS, pod("guarded", requests=wanted, limits=wanted), NS)

    async def told() -> bool:
        status = (await api.get(PODS, "guarded", NS))["status"]
        return any("user:***@127.0.0.1:9" in one.get("message", "") for one in status.get("conditions", ()))

    await eventually(told, "the failure of the extender stands in the Pod's condition", timeout_s=60)


def content(file: Path) -> bytes:
    """A file as it is meant to be read: recordings may be compressed."""
    data = file.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def admin_token(plane: ControlPlane) -> str:
    """The static token of the cluster's admin, who may read every page."""
    return plane.admin_token


async def with_faults(api: Api, proxy: CuttingProxy, scheduler: SchedulerProcess, token: str) -> None:
    """Pods come while the connection breaks and hangs; strangers knock."""
    environment: Any = [{"name": "PASSWORD", "value": "the-password-in-the-environment-8a61"}]
    for number in range(3):
        body = pod(f"pod-{number}", templates={"gpu": "one-gpu"})
        body["spec"]["containers"][0]["env"] = environment
        body["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": str(environment)}
        await api.create(PODS, body, NS)
        proxy.cut_all()
    proxy.stall()
    await ask(scheduler, "/metrics", token)
    proxy.cut_all()
    proxy.flow()
    for path in CLOSED:
        await ask(scheduler, path, FOREIGN)
        await ask(scheduler, path, token)
    await eventually(bound_are(api, 2), "two Pods are bound in spite of all", timeout_s=60)
