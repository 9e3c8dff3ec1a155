"""The secure port: health texts, who may read metrics, certificates."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from scheduler.edge import http
from scheduler.edge.auth import Authorizer
from scheduler.edge.certificates import ServingCertificate
from scheduler.edge.client import ApiClient
from scheduler.edge.errors import NotLeading
from scheduler.edge.http import HealthServer, ping
from scheduler.edge.metrics import Metrics
from scheduler.errors import ConfigError

from .scripted import ScriptedServer, Sleeps, client_for, reply, status


class State:
    """What the checks say."""

    def __init__(self) -> None:
        self.synced = ""

    def informer_sync(self) -> str:
        return self.synced

    def broken(self) -> str:
        raise RuntimeError("a check with a bug")


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
async def base(state: State) -> AsyncIterator[str]:
    server = HealthServer(
        {
            "livez": {"ping": ping},
            "readyz": {"ping": ping, "informer-sync": state.informer_sync},
            "healthz": {"ping": ping},
        },
        Metrics().render,
        host="127.0.0.1",
        port=0,
        configuration=lambda: {"kind": "KubeSchedulerConfiguration"},
    )
    yield f"http://127.0.0.1:{await server.start()}"
    await server.stop()


async def get(url: str, **options: object) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url, **options) as answer:  # type: ignore[arg-type]  # the caller's keywords
        return answer.status, await answer.text()


async def test_health_texts(base: str, state: State) -> None:
    """ok in short, one line per check when asked for or failing, single checks, exclusions."""
    assert await get(f"{base}/livez") == (200, "ok")
    assert await get(f"{base}/readyz?verbose") == (200, "[+]ping ok\n[+]informer-sync ok\nreadyz check passed\n")
    state.synced = "pods are not listed yet"
    failed = "[+]ping ok\n[-]informer-sync failed: pods are not listed yet\nreadyz check failed\n"
    assert await get(f"{base}/readyz") == (500, failed)
    assert (await get(f"{base}/readyz/informer-sync"))[0] == 500
    assert await get(f"{base}/readyz/ping") == (200, "ok")
    assert (await get(f"{base}/readyz?exclude=informer-sync"))[0] == 200
    assert (await get(f"{base}/readyz/none"))[0] == 404


async def test_outsiders_do_not_learn_reasons(base: str, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another machine the check's name is shown, its reason is not."""
    monkeypatch.setattr(http, "_near", lambda request: False)
    state.synced = "secret"
    assert "[-]informer-sync failed: reason withheld" in (await get(f"{base}/readyz"))[1]


async def test_check_with_a_bug_fails(state: State) -> None:
    """An exception in a check is a failed check."""
    server = HealthServer({"livez": {"bug": state.broken}}, Metrics().render, host="127.0.0.1", port=0)
    port = await server.start()
    code, text = await get(f"http://127.0.0.1:{port}/livez")
    await server.stop()
    assert code == 500
    assert "[-]bug failed: RuntimeError: a check with a bug" in text


async def test_loopback_reads_metrics_and_configuration(base: str) -> None:
    """No token is needed on this machine."""
    code, text = await get(f"{base}/metrics")
    assert code == 200
    assert 'scheduler_pending_pods{queue="active"} 0.0' in text
    assert await get(f"{base}/configz") == (200, '{"componentconfig":{"kind":"KubeSchedulerConfiguration"}}')


async def test_loopback_is_a_stranger_unless_it_is_trusted(state: State) -> None:
    """A port-forward ends on loopback: without --trust-loopback it needs a token, and learns no inner reasons."""
    state.synced = "no leader"
    checks = {"livez": {"ping": ping}, "readyz": {"sync": state.informer_sync}}
    server = HealthServer(checks, Metrics().render, host="127.0.0.1", port=0, trust_loopback=False)
    url = f"http://127.0.0.1:{await server.start()}"
    assert [(await get(f"{url}/{path}"))[0] for path in ("livez", "metrics", "configz")] == [200, 401, 401]
    assert "[-]sync failed: reason withheld" in (await get(f"{url}/readyz"))[1]
    await server.stop()


async def test_strangers_are_asked_for_a_token(
    server: ScriptedServer, sleeps: Sleeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without token 401, unknown token 401, known but not allowed 403, allowed 200, API server away 503; kept 10 s."""
    monkeypatch.setattr(http, "_near", lambda request: False)

    class Closed:
        def check(self) -> None:
            raise NotLeading("standby")

    now_s = [0.0]
    async with client_for(server, sleeps, gate=Closed()) as client:
        health = HealthServer(
            {},
            Metrics().render,
            host="127.0.0.1",
            port=0,
            authorizer=Authorizer(client, clock=lambda: now_s[0]),
        )
        url = f"http://127.0.0.1:{await health.start()}/metrics"
        known = {"status": {"authenticated": True, "user": {"username": "u", "groups": ["g"], "extra": {"k": ["v"]}}}}

        async def ask(token: str) -> int:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return (await get(url, headers=headers))[0]

        assert await ask("") == 401
        server.answers(reply({"status": {"authenticated": False}}, 201))
        assert await ask("unknown") == 401
        server.answers(reply(known, 201), reply({"status": {"allowed": False}}, 201))
        assert await ask("poor") == 403
        server.answers(reply(known, 201), reply({"status": {"allowed": True}}, 201))
        assert await ask("rich") == 200
        asked = len(server.requests)
        assert await ask("rich") == 200
        assert len(server.requests) == asked
        review = server.requests[-1].json["spec"]
        assert review["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        assert (review["user"], review["groups"], review["extra"]) == ("u", ["g"], {"k": ["v"]})
        now_s[0] = 11.0
        server.answers(status(500, "InternalError", "down"))
        assert await ask("rich") == 503
        await health.stop()


async def test_self_signed_certificate_serves() -> None:
    """Without files a fresh certificate serves TLS 1.2 and newer."""
    server = HealthServer(
        {"livez": {"ping": ping}}, Metrics().render, host="127.0.0.1", port=0, certificate=ServingCertificate()
    )
    port = await server.start()
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    assert await get(f"https://127.0.0.1:{port}/livez", ssl=context) == (200, "ok")
    await server.stop()


async def test_taken_port_is_a_clear_error(base: str) -> None:
    """The message names the port."""
    port = int(base.rpartition(":")[2])
    server = HealthServer({}, Metrics().render, host="127.0.0.1", port=port)
    with pytest.raises(ConfigError, match=f"cannot listen on port {port}"):
        await server.start()


def test_certificate_files_must_come_in_pairs(tmp_path: Path) -> None:
    """One file without the other, or a missing file, is refused."""
    with pytest.raises(ConfigError, match="both"):
        ServingCertificate("cert.pem", "")
    with pytest.raises(ConfigError, match=r"none\.pem"):
        ServingCertificate(str(tmp_path / "none.pem"), str(tmp_path / "none.key"))


async def test_a_server_that_lies_about_reviews(server: ScriptedServer, client: ApiClient) -> None:
    """An answer that is no review denies and is not kept."""
    server.answers(reply([1]), reply({"status": {"authenticated": False}}))
    authorizer = Authorizer(client)
    assert await authorizer.verdict("t", "/metrics") == "unavailable"
    assert await authorizer.verdict("t", "/metrics") == "unauthenticated"
    assert msgspec.json.decode(server.requests[0].body)["spec"] == {"token": "t"}
