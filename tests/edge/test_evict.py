"""Which Pods count as going while a preemption is carried out."""

from __future__ import annotations

from typing import Any

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD, convert
from scheduler.edge.errors import ApiError
from scheduler.edge.evict import Evictor
from scheduler.framework.instructions import PreemptionProgress, PreemptPods
from scheduler.state.cluster import ClusterState
from tests.app.objects import node, pod


class Client:
    """Takes every write for granted, or refuses every one."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses

    async def call(self, method: str, path: str, *_: Any) -> None:
        if self.refuses:
            raise ApiError(403, "Forbidden", "no")


class Reports:
    """Hears nothing."""

    def preempted(self, victim: Pod, preemptor: Pod, node: str, in_memory: bool) -> None: ...
    def preemption_ended(self, result: str, duration_s: float) -> None: ...
    def preemption_trouble(self, text: str) -> None: ...


def placed(state: ClusterState, name: str, on: str = "") -> Pod:
    body = pod(name, **({"nodeName": on} if on else {}))
    body["metadata"]["uid"] = name
    found: Pod = convert(POD, body)
    state.apply(Change(POD, None, found))
    return found


async def carried_out(*, withdrawn: str = "", refuses: bool = False) -> tuple[ClusterState, list[str]]:
    """A preemption of "a" and "b" on n1 for "big", with "other" nominated there too; the state, and who may try."""
    state, active = ClusterState(), list[str]()
    state.apply(Change(NODE, None, convert(NODE, node("n1"))))
    victims = placed(state, "a", "" if withdrawn == "a" else "n1"), placed(state, "b", "n1")
    big, other = placed(state, "big"), placed(state, "other")
    for waiting in (big, other):
        state.nominate(waiting, "n1")

    async def withdraw(uid: str) -> bool:
        return uid == withdrawn

    evictor = Evictor(
        Client(refuses),  # type: ignore[arg-type]  # only its calls are asked for
        state,
        Reports(),
        withdraw=withdraw,
        displace=lambda pod: None,
        activate=active.append,
        clock=lambda: 0.0,
        now=lambda: "2026-01-01T00:00:00Z",
    )
    evictor.start(PreemptPods(big, "n1", victims, (), PreemptionProgress()))
    assert state.victims == {"a", "b"}
    await evictor.finish()
    state.verify()
    return state, active


async def test_victims_count_as_going_until_the_watch_shows_it() -> None:
    """Nobody is woken: their going will."""
    state, active = await carried_out()
    assert (state.victims, active) == ({"a", "b"}, [])
    state.apply(Change(POD, state.pods["a"], None))
    assert state.victims == {"b"}


async def test_a_pod_that_only_gave_its_place_back_does_not_count_as_going() -> None:
    """It waits again and may stay wherever it is placed next."""
    state, _ = await carried_out(withdrawn="a")
    assert state.victims == {"b"}


async def test_after_a_failure_nobody_counts_as_going_and_whoever_waited_tries_again() -> None:
    """The preemptor last, after a pause: the others may fit without any eviction."""
    state, active = await carried_out(refuses=True)
    assert (state.victims, active) == (set(), ["other", "big"])
