"""The election thread against the embedded server: takeover, a loop that hangs, lost connections, release."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
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


class Replica:
    """A candidate whose loop beats until it is told to hang."""

    def __init__(self, url: str, name: str) -> None:
        self.beat = Beat()
        self.leads, self.lost = threading.Event(), threading.Event()
        self.reasons: list[str] = []
        self.exits: list[int] = []
        self.trouble: list[str] = []
        self.hanging = False
        settings = ElectionSettings(
            identity=name, lease_duration_s=1.0, renew_deadline_s=0.6, retry_period_s=0.1, namespace="kube-system"
        )
        self.elector = LeaderElector(
            Access(url),
            settings,
            self.beat,
            on_leading=self.leads.set,
            on_lost=self._lose,
            exit_process=self.exits.append,
            on_trouble=self.trouble.append,
            exit_grace_s=0.2,
        )
        self._task = asyncio.create_task(self._turn())
        self.elector.start()

    def _lose(self, reason: str) -> None:
        self.reasons.append(reason)
        self.lost.set()

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

    def make(name: str) -> Replica:
        made.append(Replica(embedded.url, name))
        return made[-1]

    yield make
    for replica in made:
        await replica.stop(release=False)


async def happens(event: threading.Event, timeout_s: float = 5.0) -> bool:
    return await asyncio.to_thread(event.wait, timeout_s)


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
