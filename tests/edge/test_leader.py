"""The election thread against the embedded server: takeover, a loop that hangs, lost connections, release."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler.api.bodies import decode_lease, lease_path
from scheduler.edge.beat import Beat
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import Access
from scheduler.edge.election import ElectionSettings
from scheduler.edge.errors import NotLeading
from scheduler.edge.leader import LeaderElector
from scheduler.embedded import EmbeddedServer, Fault
from scheduler.embedded.faults import Action

from .scripted import ScriptedServer, reply

SECRET = "the-token-nobody-may-see"


class Replica:
    """A candidate whose loop beats until it is told to hang."""

    def __init__(self, access: Access, name: str) -> None:
        self.beat = Beat()
        self.leads, self.lost = threading.Event(), threading.Event()
        self.reasons: list[str] = []
        self.exits: list[int] = []
        self.trouble: list[str] = []
        self.hanging = False
        self.broken: set[str] = set()
        """Callbacks that raise."""
        settings = ElectionSettings(
            identity=name, lease_duration_s=1.0, renew_deadline_s=0.6, retry_period_s=0.1, namespace="kube-system"
        )
        self.elector = LeaderElector(
            access,
            settings,
            self.beat,
            on_leading=self._lead,
            on_lost=self._lose,
            exit_process=self.exits.append,
            on_trouble=self._tell,
            exit_grace_s=0.2,
        )
        self._task = asyncio.create_task(self._turn())
        self.elector.start()

    def _lead(self) -> None:
        if "on_leading" in self.broken:
            raise OSError(SECRET)
        self.leads.set()

    def _lose(self, reason: str) -> None:
        self.reasons.append(reason)
        self.lost.set()
        if "on_lost" in self.broken:
            raise OSError(SECRET)

    def _tell(self, text: str) -> None:
        self.trouble.append(text)
        if "on_trouble" in self.broken:
            raise OSError(SECRET)

    async def _turn(self) -> None:
        while True:
            if not self.hanging:
                self.beat.touch()
            await asyncio.sleep(0.02)

    async def stop(self, release: bool = True) -> None:
        self._task.cancel()
        await asyncio.to_thread(self.elector.stop, release)


@pytest.fixture
async def replicas(embedded: EmbeddedServer) -> AsyncIterator[Any]:
    made: list[Replica] = []

    def make(name: str, access: Access | None = None) -> Replica:
        made.append(Replica(access or Access(embedded.url), name))
        return made[-1]

    yield make
    for replica in made:
        await replica.stop(release=False)


async def happens(event: threading.Event, timeout_s: float = 5.0) -> bool:
    return await asyncio.to_thread(event.wait, timeout_s)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5.0):
        while not condition():  # noqa: ASYNC110 (a thread changes it)
            await asyncio.sleep(0.01)


async def lease(api: ApiClient) -> Any:
    return decode_lease((await api.call("GET", lease_path("kube-system", "dra-scheduler"))).body).spec


async def test_one_leads_and_release_hands_over(api: ApiClient, replicas: Any) -> None:
    """The first leads, the second stands by and takes over right after the release."""
    first = replicas("a")
    assert await happens(first.leads)
    first.elector.check()
    second = replicas("b")
    with pytest.raises(NotLeading, match="standby"):
        second.elector.check()
    await first.stop(release=True)
    assert (await lease(api)).holderIdentity in ("", "b")
    assert await happens(second.leads)
    assert (await lease(api)).leaseTransitions == 1
    assert not first.lost.is_set()
    assert first.exits == []


async def test_hanging_loop_loses_the_leadership(api: ApiClient, replicas: Any) -> None:
    """Without a beat the Lease is left alone, the standby takes over, the hanging one may write nothing and exits."""
    first = replicas("a")
    assert await happens(first.leads)
    second = replicas("b")
    first.hanging = True
    assert await happens(first.lost)
    assert "not renewed" in first.reasons[0]
    with pytest.raises(NotLeading):
        first.elector.check()
    assert await happens(second.leads)
    await asyncio.sleep(0.3)
    assert first.exits == [1]
    assert any("has not turned" in text for text in first.trouble)


async def test_unreachable_server_ends_the_leadership(embedded: EmbeddedServer, replicas: Any) -> None:
    """Requests that hang do not keep anybody in office."""
    first = replicas("a")
    assert await happens(first.leads)
    embedded.faults.add(Fault(Action.DELAY, kind="leases", delay_s=2.0, times=None))
    assert await happens(first.lost, 3.0)
    assert not first.elector.leading
    embedded.faults.clear()


async def test_passing_trouble_is_survived(embedded: EmbeddedServer, replicas: Any, api: ApiClient) -> None:
    """Single conflicts, server errors, dropped connections and lost answers cost a turn, not the office."""
    first = replicas("a")
    assert await happens(first.leads)
    for fault in (
        Fault(Action.ANSWER, verb="patch", kind="leases", code=409),
        Fault(Action.ANSWER, verb="patch", kind="leases", code=500),
        Fault(Action.DROP_BEFORE, verb="patch", kind="leases"),
        Fault(Action.DROP_AFTER, verb="patch", kind="leases"),
    ):
        embedded.faults.add(fault)
        await asyncio.sleep(0.3)
        assert fault.hits == 1
    assert first.elector.leading
    assert not first.lost.is_set()
    assert first.elector.healthy()
    assert (await lease(api)).leaseTransitions == 0


@pytest.mark.parametrize("token", [f"{SECRET}\nmore", f"{SECRET}\x00", f"{SECRET}\u20ac"])
async def test_a_header_that_cannot_be_sent_costs_turns_and_is_not_told(
    embedded: EmbeddedServer, replicas: Any, token: str
) -> None:
    """The standby stays in the race, and leads when the credentials are mended; nobody is told the token."""
    access = Access(embedded.url, authorization=f"Bearer {token}")
    first = replicas("a", access)
    await until(lambda: len(first.trouble) >= 2)
    assert first.elector.healthy()
    access.set_authorization("")
    assert await happens(first.leads)
    assert "not one line of ASCII" in first.trouble[0]
    assert not [text for text in first.trouble if SECRET in text]


async def test_a_header_that_the_library_refuses_is_not_told(
    embedded: EmbeddedServer, replicas: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error shows the header, ours does not; the connection is a new one the next time."""
    access = Access(embedded.url)
    with monkeypatch.context() as patched:
        patched.setattr(access, "authorization", lambda: f"Bearer {SECRET}\nmore")
        first = replicas("a", access)
        await until(lambda: len(first.trouble) >= 2)
    assert await happens(first.leads)
    assert {text.partition("/leases/")[2] for text in first.trouble} == {
        "dra-scheduler: the request cannot be written: ValueError"
    }


@pytest.mark.parametrize("content", [f"{SECRET}\n{SECRET}".encode(), SECRET.encode() + b"\xff", b""])
async def test_a_token_file_that_is_none_costs_turns_and_is_named(
    embedded: EmbeddedServer, replicas: Any, tmp_path: Path, content: bytes
) -> None:
    """As soon as the file holds a token, the standby leads."""
    file = tmp_path / "token"
    file.write_bytes(content)
    first = replicas("a", Access(embedded.url, token_file=file))
    await until(lambda: len(first.trouble) >= 2)
    assert first.elector.healthy()
    file.write_text("sound")
    assert await happens(first.leads)
    assert str(file) in first.trouble[0]
    assert not [text for text in first.trouble if SECRET in text]


async def test_an_answer_of_any_depth_costs_a_turn(server: ScriptedServer, replicas: Any) -> None:
    """JSON that is nested deeper than any decoder goes."""

    async def deep(request: Any, body: bytes) -> Any:
        answer = reply({})
        answer.body = b'{"spec":{"x":' + b"[" * 5000 + b"]" * 5000 + b"}}"
        return answer

    server.answers(deep)
    first = replicas("a", Access(server.url))
    await until(lambda: len(first.trouble) >= 2)
    assert first.elector.healthy()
    assert "no lease" in first.trouble[1]


@pytest.mark.parametrize("error", [MemoryError(SECRET), KeyError(SECRET), RecursionError(SECRET)])
async def test_whatever_a_turn_raises_costs_that_turn(
    embedded: EmbeddedServer, replicas: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It is told with its type; its text may show anything."""
    access = Access(embedded.url)

    def failing() -> str:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(access, "authorization", failing)
        first = replicas("a", access)
        await until(lambda: len(first.trouble) >= 2)
        assert first.elector.healthy()
    assert await happens(first.leads)
    assert first.trouble[0] == f"lease kube-system/dra-scheduler: failed with {type(error).__name__}"


async def test_whatever_turns_raise_a_leader_gives_up_in_time(
    embedded: EmbeddedServer, replicas: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The office is lost, is told to be lost, and the process ends, even when nobody can be told anything."""
    access = Access(embedded.url)
    first = replicas("a", access)
    assert await happens(first.leads)
    first.broken |= {"on_trouble", "on_lost"}

    def failing() -> str:
        raise KeyError(SECRET)

    monkeypatch.setattr(access, "authorization", failing)
    assert await happens(first.lost)
    await until(lambda: first.exits)
    assert first.exits == [1]
    assert "not renewed" in first.reasons[0]


async def test_words_that_find_no_ear_cost_no_office(embedded: EmbeddedServer, replicas: Any) -> None:
    """A log that cannot be written ends nothing, and whoever could not be told that it leads is told again."""
    first = replicas("a")
    first.broken |= {"on_leading", "on_trouble"}
    await until(lambda: len(first.trouble) >= 2)
    assert first.elector.healthy()
    first.broken.clear()
    assert await happens(first.leads)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # that is the point
async def test_a_dead_thread_is_not_healthy(
    embedded: EmbeddedServer, replicas: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no handler may catch ends the thread; a thread that was stopped has ended in good order."""
    access = Access(embedded.url)
    first, second = replicas("a", access), replicas("b")
    assert first.elector.healthy()

    def ending() -> str:
        raise SystemExit

    monkeypatch.setattr(access, "authorization", ending)
    await until(lambda: not first.elector.healthy())
    await second.stop()
    assert second.elector.healthy()
