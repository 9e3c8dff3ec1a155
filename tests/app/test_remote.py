"""The commands ask a running scheduler: same answers, their own token, TLS verified unless told otherwise."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from scheduler.app.dashboard import dashboard_mounts
from scheduler.app.local_dashboard import local_dashboard
from scheduler.app.remote import Remote
from scheduler.audit.records import Record
from scheduler.cli.main import main
from scheduler.edge.audit_store import AuditStore
from scheduler.edge.certificates import ServingCertificate
from scheduler.edge.credentials import Access, insecure
from scheduler.edge.http import HealthServer
from scheduler.edge.metrics import Metrics
from scheduler.edge.port_forward import PROTOCOL, PortForward
from scheduler.errors import ClusterError
from tests.app.asker import ADMIN, MINE, Asker, asker


class Command:
    """Runs a command in a thread; its exit code, output and error."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, arguments)
        out, error = self._capsys.readouterr()
        assert "Traceback" not in error
        return code, out, error


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def token(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text(f"{ADMIN}\n")
    return str(file)


def rewrite(file: str, text: str) -> None:
    Path(file).write_text(text)


@asynccontextmanager
async def secure(ask: Asker, audit_file: str = "") -> AsyncIterator[str]:
    """The same scheduler on an HTTPS port with a certificate of its own making."""
    mounts = dashboard_mounts(ask.world.service, ask.world.client, audit_file=audit_file)
    server = HealthServer(
        {}, Metrics().render, host="127.0.0.1", port=0, certificate=ServingCertificate(), mounts=mounts
    )
    try:
        yield f"https://127.0.0.1:{await server.start()}"
    finally:
        await server.stop()


def kubeconfig(folder: Path, server: str, user: dict[str, str]) -> str:
    file = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(yaml.safe_dump(content))
    return str(file)


async def test_the_three_commands_over_http(command: Command, token: str) -> None:
    """Text and JSON, exit codes as from files; the answer is redacted for the token's owner."""
    async with asker() as ask:
        at = ("--server", ask.url, "--token-file", token)
        code, out, _ = await command("explain", "pod/big", *at)
        assert code == 2
        assert out.startswith("Pod default/big waits\n")
        assert "claim team/their-claim (pod team/their-pod" in out
        assert "What would help" in out
        code, out, _ = await command("explain", "pod/big", "--hints=false", "-o", "json", *at)
        assert (code, json.loads(out)["hints"]) == (2, [])
        code, out, _ = await command("inventory", "--by", "node", "-o", "yaml", *at)
        assert (code, [line["node"] for line in yaml.safe_load(out)["lines"]]) == (0, ["n1", "n2"])
        code, out, _ = await command("lint", *at)
        assert "error ResourceClaim default/much" in out
        rewrite(token, MINE)
        code, out, _ = await command("explain", "pod/big", *at)
        assert code == 2
        assert "team" not in out
        code, _, error = await command("explain", "pod/their-pod", "-n", "team", *at)
        assert code == 1
        assert 'User "mine" cannot get resource "pods"' in error
        rewrite(token, "nobody knows it")
        code, _, error = await command("explain", "pod/big", *at)
        assert (code, "does not hold one token" in error) == (1, True)
        rewrite(token, "unknown")
        code, _, error = await command("explain", "pod/big", *at)
        assert (code, "does not accept it" in error) == (1, True)


async def test_a_certificate_that_is_not_known_is_refused(command: Command, token: str) -> None:
    """The token is only sent to who proves to be the scheduler, or when told not to look."""
    async with asker() as ask, secure(ask) as url:
        at = ("--server", url, "--token-file", token)
        code, _, error = await command("explain", "pod/big", *at)
        assert code == 1
        assert "certificate verify failed" in error
        code, out, _ = await command("explain", "pod/big", *at, "--insecure-skip-server-verify")
        assert (code, out.startswith("Pod default/big waits")) == (2, True)


async def test_the_kubeconfigs_token_is_used(command: Command, tmp_path: Path) -> None:
    """Without --token-file the caller is the kubeconfig's user; a client certificate says nothing to the scheduler."""
    async with asker() as ask, secure(ask) as url:
        file = kubeconfig(tmp_path, ask.world.server.url, {"token": MINE})
        at = ("--server", url, "--insecure-skip-server-verify", "--kubeconfig", file)
        code, out, _ = await command("explain", "pod/big", *at)
        assert (code, "team" in out) == (2, False)
        kubeconfig(tmp_path, "https://127.0.0.1:1", {})
        code, _, error = await command("explain", "pod/big", *at)
        assert code == 1
        assert "no bearer token" in error


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--server", "10.0.0.1"), "is not a URL"),
        (("--server", "ftp://x"), "is not a URL"),
        (("--server", "http://scheduler.example"), "must not travel unprotected"),
        (("--server", "https://x", "--port-forward"), "exclude each other"),
        (("--server", "https://x", "-f", "dump.yaml"), "exclude each other"),
        (("--server", "https://x", "--config", "c.yaml"), "exclude each other"),
        (("--token-file", "t"), "goes with --server"),
        (("--server", "http://127.0.0.1:1", "--token-file", "/nonexistent"), "/nonexistent"),
        (("--server", "http://127.0.0.1:1"), "cannot connect"),
    ],
)
async def test_flags_that_do_not_go_together(command: Command, arguments: tuple[str, ...], problem: str) -> None:
    """Each is refused with a sentence, before anything is sent."""
    code, _, error = await command("explain", "pod/big", *arguments)
    assert code == 1
    assert problem in error


# the port-forward


class Kubelet:
    """The streaming end of a port-forward, in the kubelets' protocol, behind the path of the API server."""

    def __init__(
        self,
        target: int | dict[str, int] = 0,
        *,
        protocol: str = PROTOCOL,
        refuse: str = "",
        status: int = 0,
        behind: str = "",
    ) -> None:
        self._behind = behind
        self._target, self._protocol, self._refuse, self._status = target, protocol, refuse, status
        self.tokens: list[str] = []
        self.pods: list[dict[str, Any]] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/api/v1/namespaces/{namespace}/pods", self._list)
        app.router.add_get("/api/v1/namespaces/{namespace}/pods/{name}/portforward", self._forward)
        app.router.add_get("/{path:.*}", self._other)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        await runner.cleanup()

    async def _other(self, request: web.Request) -> web.Response:
        """Everything else is for the API server behind it, if there is one."""
        if not self._behind:
            raise web.HTTPNotFound
        async with aiohttp.ClientSession() as session, session.get(f"{self._behind}{request.path_qs}") as answer:
            return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)

    async def _list(self, request: web.Request) -> web.Response:
        assert request.query["labelSelector"] == "app.kubernetes.io/name=dra-scheduler"
        return web.json_response({"items": self.pods})

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization", ""))
        if self._status:
            return web.json_response(
                {"kind": "Status", "message": "no right", "code": self._status}, status=self._status
            )
        port = int(request.query["ports"])
        socket = web.WebSocketResponse(protocols=(self._protocol,))
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(bytes((channel,)) + struct.pack("<H", port))
        if self._refuse:
            await socket.send_bytes(b"\x01" + self._refuse.encode())
            await socket.close()
            return socket
        target = self._target if isinstance(self._target, int) else self._target[request.match_info["name"]]
        reader, writer = await asyncio.open_connection("127.0.0.1", target)

        async def back() -> None:
            while chunk := await reader.read(1000):
                await socket.send_bytes(b"\x00" + chunk)
            await socket.close()

        task = asyncio.create_task(back())
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY and message.data[:1] == b"\x00":
                writer.write(message.data[1:])
        writer.close()
        task.cancel()
        return socket


def scheduler_pod(name: str, ready: str = "True") -> dict[str, Any]:
    container = {"name": "s", "ports": [{"name": "https", "containerPort": 10259}]}
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": "n", "containers": [container]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


async def test_the_commands_own_port_forward(command: Command, tmp_path: Path) -> None:
    """A ready Pod of the scheduler is found and asked through the API server, with the kubeconfig's token."""
    async with asker() as ask, secure(ask) as url:
        kubelet = Kubelet(int(url.rpartition(":")[2]))
        async with kubelet.serving() as api:
            file = kubeconfig(tmp_path, api, {"token": MINE})
            code, _, error = await command("explain", "pod/big", "--port-forward", "--kubeconfig", file)
            assert (code, "there is none" in error) == (1, True)
            kubelet.pods = [scheduler_pod("a", ready="False")]
            code, _, error = await command("explain", "pod/big", "--port-forward", "--kubeconfig", file)
            assert (code, "1 of them exist, none is ready" in error) == (1, True)
            kubelet.pods.append(scheduler_pod("b"))
            code, out, _ = await command("explain", "pod/big", "--port-forward", "--kubeconfig", file)
            assert (code, out.startswith("Pod default/big waits")) == (2, True)
            assert set(kubelet.tokens) == {f"Bearer {MINE}"}


def trail(file: Path, *records: Record) -> str:
    """An audit file."""
    store = AuditStore(str(file), max_age_s=1e12, max_size_bytes=1 << 24)
    store.write(records)
    store.close()
    return str(file)


async def test_audit_asks_a_running_scheduler(command: Command, token: str, tmp_path: Path) -> None:
    """The same story as from the file, to who may get the Pod; the file is on another machine."""
    record = Record("1", "decision", 100.0, pod="default/past", node="n1", outcome="bound", evaluated=2, feasible=1)
    file = trail(tmp_path / "audit.db", record)
    async with asker(audit_file=file) as ask:
        at = ("--server", ask.url, "--token-file", token)
        told = await command("audit", "pod/past", *at)
        assert told == await command("audit", "pod/past", "--file", file)
        assert (told[0], "bound to node n1" in told[1]) == (0, True)
        code, out, _ = await command("audit", "node", "n1", "-o", "json", *at)
        assert (code, json.loads(out)["records"][0]["pod"]) == (0, "default/past")
        code, _, error = await command("audit", "pod/past", "--since=1970-01-01T00:02:00Z", *at)
        assert (code, "nothing is on record" in error) == (1, True)
        code, _, error = await command("audit", "pod/past", "-n", "team", *at)
        assert (code, "nothing is on record" in error) == (1, True)
        rewrite(token, MINE)
        code, out, _ = await command("audit", "pod/past", *at)
        assert (code, "bound to node (node 1)" in out) == (0, True)
        code, _, error = await command("audit", "node", "n1", *at)
        assert (code, 'User "mine" cannot get resource "nodes"' in error) == (1, True)
        for wrong in (("export",), ("pod/past", "--file", file)):
            assert (await command("audit", *wrong, *at))[0] == 1
    code, _, error = await command("audit", "pod/past", "--kubeconfig", "x")
    assert (code, "--kubeconfig goes with" in error) == (1, True)


async def test_audit_asks_every_replica(command: Command, tmp_path: Path) -> None:
    """Each keeps a trail of what it decided itself; one that knows nothing of the Pod does not matter."""
    first = trail(tmp_path / "a.db", Record("1", "rejection", 100.0, pod="default/past", text="0/2 nodes"))
    second = trail(tmp_path / "b.db", Record("2", "decision", 200.0, pod="default/past", node="n1", outcome="bound"))
    third = trail(tmp_path / "c.db")
    async with asker() as ask, AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(secure(ask, file)) for file in (first, second, third)]
        kubelet = Kubelet({name: int(url.rpartition(":")[2]) for name, url in zip("abc", urls, strict=True)})
        kubelet.pods = [scheduler_pod(name) for name in "abc"]
        api = await stack.enter_async_context(kubelet.serving())
        at = ("--port-forward", "--kubeconfig", kubeconfig(tmp_path, api, {"token": ADMIN}))
        code, out, error = await command("audit", "pod/past", *at)
        assert code == 0, error
        assert out.index("waits") < out.index("bound to node n1")
        code, _, error = await command("audit", "pod/none", *at)
        assert (code, "nothing is on record" in error) == (1, True)
        kubelet.pods = [scheduler_pod("c"), scheduler_pod("b")]
        code, out, _ = await command("audit", "pod/past", *at)
        assert (code, "waits" in out, "bound to node n1" in out) == (0, False, True)


async def test_large_answers_pass_the_tunnel_whole() -> None:
    """Two megabytes there and back, over several connections at once, byte for byte."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
        writer.close()

    echoing = await asyncio.start_server(echo, "127.0.0.1", 0)
    target = echoing.sockets[0].getsockname()[1]
    async with Kubelet(target).serving() as api, PortForward(insecure(api), "ns", "pod", 10259).listening() as port:

        async def one(seed: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            data = bytes((seed + at * 7) % 256 for at in range(2_000_00)) * 10
            writer.write(data)
            assert await asyncio.wait_for(reader.readexactly(len(data)), 30) == data
            writer.close()

        await asyncio.gather(*(one(seed) for seed in range(3)))
    echoing.close()


@pytest.mark.parametrize(
    ("kubelet", "problem"),
    [(Kubelet(status=403), "403"), (Kubelet(status=404), "404"), (Kubelet(protocol="other"), "does not speak")],
)
async def test_what_the_api_server_refuses(kubelet: Kubelet, problem: str) -> None:
    """No right, no Pod, another protocol: told before anything listens."""
    async with kubelet.serving() as api:
        with pytest.raises(ClusterError, match=problem):
            async with PortForward(Access(api), "ns", "pod", 10259).listening():
                pass


async def test_what_the_node_complains_about_is_told(command: Command, tmp_path: Path) -> None:
    """Nobody listens in the Pod: the kubelet's words reach the user."""
    kubelet = Kubelet(refuse="connection refused in pod")
    kubelet.pods = [scheduler_pod("a")]
    async with kubelet.serving() as api:
        file = kubeconfig(tmp_path, api, {"token": MINE})
        code, _, error = await command("inventory", "--port-forward", "--kubeconfig", file)
        assert code == 1
        assert "connection refused in pod" in error


async def test_the_dashboard_on_this_machine(tmp_path: Path) -> None:
    """Pages and answers with one's own token behind a secret address; a wrong token is told at once."""
    async with asker() as ask:
        file = tmp_path / "token"
        rewrite(str(file), MINE)
        remote = Remote(ask.url, token_file=str(file))
        async with local_dashboard(remote) as url, aiohttp.ClientSession() as session:
            async with session.get(url) as answer:
                assert "<title>dra-scheduler</title>" in await answer.text()
            async with session.get(f"{url}settings.json") as answer:
                assert await answer.json() == {"token": False}
            async with session.get(f"{url}../questions/v1/pods?limit=5") as answer:
                assert [pod["pod"] for pod in (await answer.json())["answer"]["pods"]] == ["default/big"]
            async with session.get(f"{url}../questions/v1/namespaces/team/pods/their-pod/explanation") as answer:
                assert (answer.status, "cannot get resource" in (await answer.json())["message"]) == (403, True)
            base = url.split("/")[:3]
            for path in ("dashboard/", "questions/v1/pods", "wrong-secret/questions/v1/pods"):
                async with session.get("/".join([*base, path])) as answer:
                    assert answer.status == 404, path
            async with session.get(url, headers={"Host": "evil.example"}) as answer:
                assert answer.status == 421
            for outside in ("../metrics", "../questions/../metrics", "../questions/v1/../../metrics"):
                async with session.get(url + outside) as answer:
                    assert answer.status == 404, outside
        rewrite(str(file), "unknown")
        with pytest.raises(ClusterError, match="bearer token"):
            async with local_dashboard(remote):
                pass
