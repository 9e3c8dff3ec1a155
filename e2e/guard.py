"""The guard as child processes, the shipped manifests pointed at them, and a Service in miniature in front."""

from __future__ import annotations

import asyncio
import base64
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiohttp import web

from e2e.api import CLAIMS, JSON_PATCH, LEASES, Api, ApiError, Resource
from e2e.controlplane import ControlPlane, build
from e2e.controlplane.processes import ManagedProcess, free_port
from e2e.waiting import eventually

READY_TIMEOUT_S = 60.0
NAMESPACE = "dra-scheduler"
NAME = "dra-scheduler-guard"
MODE_LABEL = "guard.dra-scheduler/mode"
WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
SECRETS = Resource("", "v1", "secrets", "Secret")
_REPO = Path(__file__).resolve().parent.parent
# Short times, so that suites of takeovers need not wait; the settling time is what each suite chooses.
ELECTION = (
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=1s",
)


class GuardProcess(ManagedProcess):
    """``dra-scheduler guard`` with its own ports and log. settle_s: for how long a write may be alive."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        *,
        name: str = "guard",
        settle_s: float = 0.5,
        arguments: Sequence[str] = (),
    ) -> None:
        self.webhook_port, self.port = free_port(), free_port()
        command = [
            sys.executable,
            "-m",
            "scheduler.cli.main",
            "guard",
            f"--kubeconfig={kubeconfig}",
            f"--namespace={NAMESPACE}",
            "--bind-address=127.0.0.1",
            "--host=127.0.0.1",
            f"--webhook-port={self.webhook_port}",
            f"--secure-port={self.port}",
            f"--api-request-timeout={settle_s}s",
            "--trust-loopback",
            "-v=2",
            *arguments,
        ]
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(name, command, folder / f"{name}.log")

    def get(self, path: str) -> str:
        """The body of an endpoint of the health port, "" when it does not answer or refuses."""
        context = ssl._create_unverified_context()  # its certificate is self-signed, made at start
        try:
            with urllib.request.urlopen(f"https://127.0.0.1:{self.port}{path}", timeout=20, context=context) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return ""

    def active(self) -> bool:
        """Whether it answers reviews."""
        return self.get("/readyz") == "ok"

    def start_and_wait(self) -> GuardProcess:
        """Start and wait until it answers reviews."""
        self.start()
        self.wait_ready(self.active, READY_TIMEOUT_S)
        return self

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels; 0 without any."""
        total = 0.0
        for line in self.get("/metrics").splitlines():
            sample, _, value = line.rpartition(" ")
            bare, _, inside = sample.partition("{")
            if bare == name and all(f'{key}="{text}"' in inside for key, text in labels.items()):
                total += float(value)
        return total

    def log(self) -> str:
        """The whole log."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""


class Front:
    """What a Service does: passes connections to the guard that is ready. ``port`` once started."""

    def __init__(self, *guards: GuardProcess) -> None:
        self.guards = list(guards)
        self.port = 0
        self._ready: GuardProcess | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Front:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._tasks.add(asyncio.create_task(self._probe()))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _probe(self) -> None:
        while True:
            found = None
            for guard in self.guards:
                if guard.pid is not None and await asyncio.to_thread(guard.active):
                    found = guard
            self._ready = found
            await asyncio.sleep(0.1)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        outer: asyncio.StreamWriter | None = None
        try:
            if self._ready is None:
                return
            inner, outer = await asyncio.open_connection("127.0.0.1", self._ready.webhook_port)
            await asyncio.gather(_pump(reader, outer), _pump(inner, writer))
        except (OSError, asyncio.CancelledError):
            return
        finally:
            for end in (writer, outer):
                if end is not None:
                    end.close()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    with suppress(OSError):
        target.close()


def apply(plane: ControlPlane, folder: str = "guard") -> None:
    """`kubectl apply -k manifests/<folder>` as admin; the API server validates every field."""
    kubectl = build.control_plane_binaries() / "kubectl"
    command = [str(kubectl), f"--kubeconfig={plane.kubeconfig_for()}", "apply", "-k", str(_REPO / "manifests" / folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


async def point_at(api: Api, port: int, *, policy: str = "Fail") -> None:
    """Let the shipped configuration call 127.0.0.1:port instead of the Service, with this failurePolicy."""
    found = await api.get(WEBHOOKS, NAME)
    patch = []
    for place, webhook in enumerate(found["webhooks"]):
        mode = webhook["name"].partition(".")[0]
        client = {"url": f"https://127.0.0.1:{port}/{mode}"}
        if bundle := webhook["clientConfig"].get("caBundle"):
            client["caBundle"] = bundle
        patch.append({"op": "replace", "path": f"/webhooks/{place}/clientConfig", "value": client})
        if mode == "enforce":
            patch.append({"op": "replace", "path": f"/webhooks/{place}/failurePolicy", "value": policy})
    await api.patch(WEBHOOKS, NAME, patch, content_type=JSON_PATCH)


async def remove(api: Api) -> None:
    """Take the webhooks away (else nobody could allocate any more), the Lease and the certificates."""
    await api.delete(WEBHOOKS, NAME, missing_ok=True)
    await api.delete(LEASES, NAME, NAMESPACE, missing_ok=True)
    await api.delete(SECRETS, f"{NAME}-certificates", NAMESPACE, missing_ok=True)


async def give_back_lease(api: Api) -> None:
    """A Lease that was given back: the first guard need not wait for a predecessor."""
    await api.create(LEASES, {"metadata": {"name": NAME}, "spec": {"leaseDurationSeconds": 1}}, NAMESPACE)


def account(plane: ControlPlane) -> Path:
    """A kubeconfig of the guard's ServiceAccount, which has what manifests/guard grants."""
    return plane.kubeconfig_for(service_account=(NAMESPACE, NAME))


async def called(api: Api) -> None:
    """Wait until the API server calls the guard with a certificate it trusts: its view of the configuration lags."""
    probe = {
        "metadata": {"name": "guard-probe", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "none"}}]}},
    }
    await api.create(CLAIMS, probe)
    status = {"allocation": {"devices": {"results": [
        {"request": "r", "driver": "none.example.com", "pool": "none", "device": "none"}]}}}  # fmt: skip
    seen = [""]

    async def refused() -> bool:
        try:
            await api.patch(CLAIMS, "guard-probe", {"status": status}, "default", "status", dryRun="All")
        except ApiError as error:
            seen[0] = error.message
            return "denied the request" in error.message
        return False

    try:
        await eventually(refused, "the API server calls the guard", timeout_s=READY_TIMEOUT_S)
    except AssertionError:
        raise AssertionError(f"the guard is not called: {seen[0]}") from None
    finally:
        await api.delete(CLAIMS, "guard-probe", "default")


SLOW = "slow.example.com"


class SlowWebhook:
    """Another validating webhook on the status of claims labelled slow: it answers ``allows``, once ``go`` is set.

    The API server asks all webhooks at once and stores nothing before the last answer: so a write that the guard has
    admitted long ago lands late (34 s at most after it was sent).
    """

    def __init__(self, plane: ControlPlane, api: Api) -> None:
        self._plane, self._api = plane, api
        self.go = asyncio.Event()
        self.allows = True
        self.asked = 0

    async def __aenter__(self) -> SlowWebhook:
        certificate, key = self._plane.serving_files("slow-webhook")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        app = web.Application()
        app.router.add_post("/", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = self._runner.addresses[0][1]
        await self._api.delete(WEBHOOKS, SLOW, missing_ok=True)
        webhook = {
            "name": SLOW,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 30,
            "clientConfig": {
                "url": f"https://127.0.0.1:{port}/",
                "caBundle": base64.b64encode(self._plane.ca_file.read_bytes()).decode(),
            },
            "rules": [
                {
                    "apiGroups": ["resource.k8s.io"],
                    "apiVersions": ["v1"],
                    "resources": ["resourceclaims/status"],
                    "operations": ["UPDATE"],
                }
            ],
            "objectSelector": {"matchLabels": {"slow": "yes"}},
        }
        await self._api.create(WEBHOOKS, {"metadata": {"name": SLOW}, "webhooks": [webhook]})
        return self

    async def hold(self, claim: str, namespace: str = "default") -> None:
        """Wait until the API server calls us for this claim (its webhooks lag), then answer nothing until ``go``."""
        self.go.set()

        async def called_for() -> bool:
            with suppress(ApiError):
                no_change = {"status": {"reservedFor": None}}
                await self._api.patch(CLAIMS, claim, no_change, namespace, "status", dryRun="All")
            return self.asked > 0

        await eventually(called_for, "the slow webhook is called", timeout_s=READY_TIMEOUT_S)
        self.go.clear()
        self.asked = 0

    async def __aexit__(self, *_: object) -> None:
        self.go.set()
        await self._api.delete(WEBHOOKS, SLOW, missing_ok=True)
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        review = await request.json()
        self.asked += 1
        await self.go.wait()
        response = {"uid": review["request"]["uid"], "allowed": self.allows}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})


@asynccontextmanager
async def guarded(
    plane: ControlPlane,
    api: Api,
    folder: Path,
    *,
    policy: str = "Fail",
    settle_s: float = 0.5,
    manifests: str = "guard",
    arguments: Sequence[str] = (),
    handed_over: bool = False,
    fresh: bool = True,
) -> AsyncIterator[GuardProcess]:
    """One guard, called by the API server, while the block runs.

    ``handed_over``: it need not settle first. ``fresh``: with the manifests applied anew and nothing left from before.
    """
    if fresh:
        await remove(api)
        apply(plane, manifests)
    if handed_over:
        await give_back_lease(api)
    guard = GuardProcess(folder, account(plane), settle_s=settle_s, arguments=arguments)
    await point_at(api, guard.webhook_port, policy=policy)
    try:
        await asyncio.to_thread(guard.start_and_wait)
        if manifests == "guard":
            await called(api)
        yield guard
    finally:
        await remove(api)
        await asyncio.to_thread(guard.stop)
