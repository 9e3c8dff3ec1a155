"""The loop: whatever an attempt, a plugin or a commit does, it costs that Pod its attempt and nothing else."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD
from scheduler.edge import loop as loop_module
from scheduler.edge.commit_ports import CommitOutcome
from scheduler.edge.timeslices import TimeSlices
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.status import SUCCESS, Status, error, unresolvable, unschedulable
from tests.cycle.attempt_world import Gate, Room, make_node, make_pod, profile_of

from .loop_world import LoopWorld

GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def bound_to(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, nodeName=node))


class Keeper:
    """A Reserve plugin: answers or raises what the test says, and remembers what it holds."""

    name = "Keeper"

    def __init__(self, answer: Any = SUCCESS, on_unreserve: Exception | None = None, name: str = "Keeper") -> None:
        self.name, self.answer, self.on_unreserve = name, answer, on_unreserve
        self.held: list[str] = []
        self.unreserved = 0

    def events(self) -> Any:
        return (Registration(Resource.NODE, Action.ADD),)

    def reserve(self, cycle: Any, node: str) -> Any:
        self.held.append(cycle.pod.metadata.name)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def unreserve(self, cycle: Any, node: str) -> Any:
        self.unreserved += 1
        if cycle.pod.metadata.name in self.held:
            self.held.remove(cycle.pod.metadata.name)
        if self.on_unreserve is not None:
            raise self.on_unreserve
        return ()


async def test_a_pod_is_decided_committed_and_done() -> None:
    """One Pod in, one Binding out, nothing left in the queue; the room stays counted until the watch confirms."""
    w = LoopWorld(profile_of(Room()))
    pod = make_pod("a")
    w.show(None, pod)
    assert await w.turns(2) == 1
    assert w.reports.what("bound") == [("bound", "a", "n1")]
    assert len(w.queue) == 0
    assert w.state.placements[pod.uid].assumed
    w.show(pod, bound_to(pod, "n1"))
    assert not w.state.placements[pod.uid].assumed


async def test_the_next_pod_is_decided_while_the_first_is_written() -> None:
    """Commits do not stop the loop, and the room they take counts."""
    w = LoopWorld(profile_of(Room()))
    w.committer.hold = asyncio.Event()
    for name in ("a", "b", "c"):
        w.show(None, make_pod(name, cpu="8"))
    await w.turns(3)
    assert [placed.node for placed in w.committer.committed] == ["n1", "n2"]
    assert w.places() == {"a": "inFlight", "b": "inFlight", "c": "unschedulable"}
    w.committer.hold.set()
    await w.loop.finish_commits()
    assert len(w.reports.what("bound")) == 2


async def test_commits_are_bounded() -> None:
    """With every slot taken no further Pod is decided until one is free."""
    w = LoopWorld(profile_of(Room()), commits_max=2)
    w.committer.hold = asyncio.Event()
    for name in ("a", "b", "c"):
        w.show(None, make_pod(name))
    await w.turns(1)
    third = asyncio.create_task(w.turns(1))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(w.committer.committed) == 2
    assert w.places()["c"] == "active"
    w.committer.hold.set()
    await third
    await w.loop.finish_commits()
    assert len(w.reports.what("bound")) == 3


async def test_a_batch_lets_others_be_served_before_the_next_one() -> None:
    """So many Pods one after the other, then the event loop turns: what is written and what arrives is not held up."""
    w = LoopWorld(profile_of(Room()), decisions_at_once=3)
    for index in range(7):
        w.show(None, make_pod(f"p{index}"))
    decided: list[int] = []
    for _ in range(3):
        assert await w.turns(1) == 1
        decided.append(len(w.reports.what("decided")))
    assert decided == [3, 6, 7]


async def test_a_batch_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """One attempt at least, however long it took."""
    monkeypatch.setattr(loop_module, "TimeSlices", lambda: TimeSlices(slice_s=0.0))
    w = LoopWorld(profile_of(Room()), decisions_at_once=3)
    for index in range(2):
        w.show(None, make_pod(f"p{index}"))
    assert await w.turns(1) == 1
    assert len(w.reports.what("decided")) == 1


async def test_a_stop_while_room_is_waited_for_is_not_slept_over() -> None:
    """The loop ends with the commits; nothing more is decided."""
    w = LoopWorld(profile_of(Room()), commits_max=2)
    w.committer.hold = asyncio.Event()
    for index in range(6):
        w.show(None, make_pod(f"p{index}"))
    running = asyncio.create_task(w.loop.run())
    while len(w.committer.committed) < 2:  # noqa: ASYNC110  # nothing tells
        await asyncio.sleep(0)
    w.loop.stop()
    w.committer.hold.set()
    await asyncio.wait_for(running, 0.5)
    assert len(w.committer.committed) == 2


async def test_held_back_pods_are_told_while_room_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """All slots are taken for long: that is no reason to be silent about a claim that is not there."""
    monkeypatch.setattr(loop_module, "GATE_LOOK_S", 0.01)
    held = unresolvable("claim is missing").by("DynamicResources")

    def ask(pod: Pod, first: Any = None) -> Status | None:
        return held if pod.metadata.name == "b" else None

    w = LoopWorld(profile_of(Room()), commits_max=1, pre_enqueue=ask, why_gated=ask)
    w.committer.hold = asyncio.Event()
    w.show(None, make_pod("a"))
    w.show(None, make_pod("c"))
    running = asyncio.create_task(w.loop.run())
    while not w.committer.committed:  # noqa: ASYNC110  # nothing tells
        await asyncio.sleep(0)
    w.show(None, make_pod("b"))
    w.now += 10.0
    for _ in range(200):
        await asyncio.sleep(0.01)
        if w.reports.what("gated"):
            break
    assert [name for _, name, _ in w.reports.what("gated")] == ["b"]
    w.loop.stop()
    w.committer.hold.set()
    await running


async def test_a_batch_ends_when_the_lease_does() -> None:
    """Nothing is decided once this replica may not lead, not even the rest of a batch."""
    w = LoopWorld(profile_of(Room()), decisions_at_once=3)
    for index in range(3):
        w.show(None, make_pod(f"p{index}"))
    w.loop.may_decide = lambda: not w.reports.what("decided")
    assert await w.turns(1) == 1
    assert len(w.reports.what("decided")) == 1


@pytest.mark.parametrize("at_once", [2, 4, 32])
async def test_batches_decide_as_one_by_one(at_once: int) -> None:
    """Pods of four classes, some of which fit no more: the same nodes and the same refusals in the same order."""
    said: list[list[tuple[str, str, str]]] = []
    for number in (1, at_once):
        w = LoopWorld(profile_of(Room()), decisions_at_once=number, commits_max=64)
        rng = random.Random(at_once)
        for index in range(24):
            w.show(None, make_pod(f"p{index:02}", cpu=rng.choice(["1", "2", "3", "9"])))
        await w.turns(30)
        await w.loop.finish_commits()
        said.append(w.reports.what("popped", "decided", "failed"))
        assert len(w.reports.what("decided")) >= 24
    assert said[0] == said[1]


async def test_a_deleting_pod_is_not_scheduled() -> None:
    """B110: it is told once and leaves the queue."""
    w = LoopWorld(profile_of(Room()))
    w.show(None, make_pod("a", **GOING))
    await w.turns(2)
    assert w.reports.what("deleting", "decided") == [("deleting", "a", "")]
    assert len(w.queue) == 0


async def test_a_pod_deleted_while_it_is_written_frees_its_room_at_once() -> None:
    """The room is free before the commit ends, nothing is freed twice, and nobody hears of a failure."""
    w = LoopWorld(profile_of(Room()))
    w.committer.hold = asyncio.Event()
    w.committer.answer = lambda placed: CommitOutcome(gone=True)
    pod = make_pod("a", cpu="8")
    w.show(None, pod)
    await w.turns()
    w.show(pod, None)
    assert w.state.placements == {}
    w.committer.hold.set()
    await w.loop.finish_commits()
    assert w.reports.what("failed", "broken") == []
    assert len(w.queue) == 0


async def test_updates_of_an_assumed_pod_do_not_queue_it_again() -> None:
    """Its own condition comes back while it is being written: it stays in flight, once."""
    w = LoopWorld(profile_of(Room()))
    w.committer.hold = asyncio.Event()
    pod = make_pod("a")
    w.show(None, pod)
    await w.turns()
    newer = make_pod("a", resourceVersion="7", labels={"x": "y"})
    w.show(pod, newer)
    assert await w.turns() == 0
    assert w.places() == {"a": "inFlight"}
    w.committer.answer = lambda placed: CommitOutcome(text="no")
    w.committer.hold.set()
    await w.loop.finish_commits()
    queued = w.queue.get(pod.uid)
    assert queued is not None
    assert queued.pod is newer


async def test_a_failed_commit_gives_the_room_back_and_wakes_others() -> None:
    """Back-off for the Pod itself, and whoever waited for its room is tried again."""

    class Waking(Room):
        def events(self) -> Any:
            return (Registration(Resource.ASSIGNED_POD, Action.DELETE),)

    w = LoopWorld(profile_of(Waking()), nodes=("n1",))
    w.committer.hold = asyncio.Event()
    w.committer.answer = lambda placed: CommitOutcome(text="refused", lost=True)
    w.show(None, make_pod("a", cpu="8"))
    w.show(None, make_pod("b", cpu="8"))
    await w.turns(2)
    assert w.places()["b"] == "unschedulable"
    w.committer.hold.set()
    await w.loop.finish_commits()
    assert w.state.placements == {}
    assert w.places() == {"a": "errorBackoff", "b": "backoff"}
    assert w.reports.what("lost", "failed")[-2:] == [("lost", "a", "refused"), ("failed", "a", "refused")]


@pytest.mark.parametrize("undo_error", [None, ValueError("undo, too")])
async def test_an_unforeseen_error_in_a_commit_costs_the_attempt_only(undo_error: Exception | None) -> None:
    """Undone, forgotten, told, tried again later; also when the undo breaks."""
    w = LoopWorld(profile_of(Room()))

    def explode(placed: Any) -> CommitOutcome:
        raise ZeroDivisionError("boom")

    w.committer.answer, w.committer.undo_error = explode, undo_error
    w.show(None, make_pod("a"))
    await w.turns()
    assert len(w.committer.undone) == 1
    assert w.state.placements == {}
    assert w.places() == {"a": "errorBackoff"}
    assert len(w.reports.what("broken")) == (1 if undo_error is None else 2)
    assert w.reports.what("failed") == [("failed", "a", "ZeroDivisionError: boom")]


@pytest.mark.parametrize(
    "answer", [unschedulable("taken"), unresolvable("never"), error("broken"), ValueError("boom"), None, 17]
)
async def test_a_reserve_that_does_not_succeed_leaves_nothing(answer: Any) -> None:
    """Refusal, error, exception, nonsense: every Reserve plugin lets go, the room is free, the Pod waits."""
    first, second = Keeper(name="First"), Keeper(answer, name="Second")
    w = LoopWorld(profile_of(Room(), first, second))
    w.show(None, make_pod("a"))
    await w.turns(2)
    assert (first.held, second.held, first.unreserved) == ([], [], 1)
    assert w.state.placements == {}
    refused = isinstance(answer, Status) and answer.code.rejected
    assert w.places() == {"a": "unschedulable" if refused else "errorBackoff"}
    (failed,) = w.reports.what("failed")
    assert "Second" in failed[2] or refused
    assert w.reports.what("broken") == []


async def test_an_unreserve_that_raises_does_not_keep_the_others() -> None:
    """The plugin is named; the other plugin lets go, the room is free, and the Pod is tried again."""
    first = Keeper(name="First")
    last = Keeper(unschedulable("no"), ValueError("boom"), name="Last")
    w = LoopWorld(profile_of(Room(), first, last))
    w.show(None, make_pod("a"))
    await w.turns()
    assert first.held == []
    assert w.state.placements == {}
    assert w.places() == {"a": "unschedulable"}
    assert "Last" in w.reports.what("broken")[0][2]


async def test_a_filter_that_raises_names_its_plugin() -> None:
    """The Pod fails with the plugin's name; the next Pod is served."""

    class Picky(Room):
        name = "Picky"

        def filter(self, cycle: Any, nodes: Any, rows: Any) -> Any:
            if cycle.pod.metadata.name == "a":
                raise ValueError("boom")
            return super().filter(cycle, nodes, rows)

    w = LoopWorld(profile_of(Picky()))
    w.show(None, make_pod("a"))
    w.show(None, make_pod("b"))
    await w.turns(2)
    assert w.reports.what("failed") == [("failed", "a", 'running Filter plugin "Picky": ValueError: boom')]
    assert w.reports.what("bound") == [("bound", "b", "n1")]


async def test_a_sort_key_that_raises_does_not_stop_the_watch() -> None:
    """A plugin's queue order breaks on one Pod: told, and the other Pods of the batch arrive."""

    def key(pod: Pod, timestamp: float) -> Any:
        if pod.metadata.name == "a":
            raise ValueError("boom")
        return timestamp

    w = LoopWorld(profile_of(Room()), sort_key=key)
    w.loop.deliver([Change(POD, None, make_pod("a")), Change(POD, None, make_pod("b"))], 1)
    assert len(w.reports.what("broken")) == 1
    assert w.places()["b"] == "active"


async def test_pods_kept_out_get_in_together_in_the_order_they_came() -> None:
    """While the first LISTs arrive no waiting Pod is in the queue; afterwards all are, as if they had come now."""
    w = LoopWorld(profile_of(Room()))
    w.loop.intake.hold()
    for number, name in enumerate("abcd"):
        w.now = 1000.0 + number
        w.show(None, make_pod(name))
    w.show(make_pod("b"), None)  # deleted meanwhile
    w.show(make_pod("c"), bound_to(make_pod("c"), "n2"))  # bound by another scheduler meanwhile
    assert len(w.queue) == 0
    w.now = 1010.0
    newer = make_pod("d", cpu="2")
    w.show(make_pod("d"), newer)  # changed meanwhile: its turn stays the same
    await w.loop.let_in()
    assert not w.loop.intake.holding
    assert w.places() == {"a": "active", "d": "active"}
    first, last = w.queue.pop(1010.0), w.queue.pop(1010.0)
    assert first is not None
    assert last is not None
    assert (first.timestamp, last.timestamp) == (1000.0, 1003.0)
    assert last.pod is newer
    w.show(None, make_pod("e"))
    assert w.places()["e"] == "active"


async def test_what_changes_while_they_get_in_is_not_lost() -> None:
    """Between two of them the watch goes on: one that is in is updated and deleted there, one that is not in here."""
    w = LoopWorld(profile_of(Room()))
    w.loop.intake.hold()
    for name in "abcd":
        w.show(None, make_pod(name))
    w.loop.intake.let_in(2)
    assert w.loop.intake.holding
    w.show(make_pod("a"), None)
    newer = make_pod("b", cpu="2")
    w.show(make_pod("b"), newer)
    w.show(make_pod("c"), None)
    w.show(None, make_pod("e"))
    assert w.places() == {"b": "active"}
    w.loop.intake.let_in(2)
    assert not w.loop.intake.holding
    assert w.places() == {"b": "active", "d": "active", "e": "active"}
    queued = w.queue.get(newer.uid)
    assert queued is not None
    assert queued.pod is newer


async def test_one_that_cannot_be_queued_does_not_keep_the_others_out() -> None:
    """A plugin's queue order breaks on one Pod: told, and the next one gets in."""

    def key(pod: Pod, timestamp: float) -> Any:
        if pod.metadata.name == "a":
            raise ValueError("boom")
        return timestamp

    w = LoopWorld(profile_of(Room()), sort_key=key)
    w.loop.intake.hold()
    w.loop.deliver([Change(POD, None, make_pod("a")), Change(POD, None, make_pod("b"))], 1)
    await w.loop.let_in()
    assert w.reports.what("broken") == [("broken", "queueing pod default/a", "ValueError: boom")]
    assert w.places()["b"] == "active"


async def test_a_turn_that_breaks_is_told_and_the_loop_goes_on() -> None:
    """Whatever a turn raises, the next one comes, after a pause."""
    calls: list[int] = []

    def may_decide() -> bool:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError("boom")
        return True

    w = LoopWorld(profile_of(Room()), may_decide=may_decide)
    running = asyncio.create_task(w.loop.run())
    w.show(None, make_pod("a"))
    async with asyncio.timeout(5):
        while not w.reports.what("bound"):  # noqa: ASYNC110 - the reports have no event to wait for
            await asyncio.sleep(0.01)
    w.loop.stop()
    await running
    assert len(w.reports.what("broken")) == 2


async def test_standing_by_is_no_hot_loop() -> None:
    """A replica that may not decide looks a few times a second, however much is due."""
    beats: list[int] = []
    w = LoopWorld(profile_of(Room()), may_decide=lambda: False, beat=lambda: beats.append(1))
    w.queue.add(make_pod("a"), w.now)
    queued = w.queue.pop(w.now)
    assert queued is not None
    w.queue.requeue(queued, queued.pod, (), (), w.now)
    w.now += 100
    assert w.queue.next_wakeup(w.now) == 0
    running = asyncio.create_task(w.loop.run())
    await asyncio.sleep(0.35)
    w.loop.stop()
    await running
    assert 1 <= len(beats) <= 6
    assert w.reports.what("popped") == []


async def test_reports_that_break_do_not_keep_the_pod_in_flight() -> None:
    """The Pod is bound whatever the reports do with it."""
    w = LoopWorld(profile_of(Room()))
    w.reports.raise_on = {"bound"}
    w.show(None, make_pod("a"))
    await w.turns()
    assert len(w.reports.what("broken")) == 1
    assert len(w.queue) == 0


class Held:
    """PreEnqueue answers of a plugin that holds Pods back until told otherwise."""

    def __init__(self) -> None:
        self.status: Status | None = unresolvable("no claim").by("Holder")

    def ask(self, pod: Pod, first: str | None = None) -> Status | None:
        return self.status


async def test_a_pod_held_back_is_told_why_after_a_while() -> None:
    """Once per reason, with what holds it now; not before three seconds, not again and again."""
    held = Held()
    w = LoopWorld(profile_of(Room()), pre_enqueue=held.ask, why_gated=held.ask)
    w.show(None, make_pod("a"))
    await w.turns()
    assert w.reports.what("gated") == []
    held.status = unresolvable("claim is being deleted").by("Holder")
    w.now += 3.5
    await w.turns(3)
    w.now += 10
    await w.turns(3)
    assert w.reports.what("gated") == [("gated", "a", "claim is being deleted")]


async def test_a_pod_no_longer_held_back_is_activated() -> None:
    """Nobody told the queue, but asked again the plugin lets it pass."""
    held = Held()
    w = LoopWorld(profile_of(Room()), pre_enqueue=held.ask, why_gated=held.ask)
    w.show(None, make_pod("a"))
    held.status = None
    w.now += 3.5
    assert await w.turns(2) >= 1
    assert w.reports.what("gated") == []
    assert w.reports.what("bound") == [("bound", "a", "n1")]


async def test_gates_of_the_user_are_not_reported() -> None:
    """SchedulingGates have their own condition from the API server."""
    gate = unresolvable("gated").by("SchedulingGates")
    w = LoopWorld(profile_of(Room()), pre_enqueue=lambda pod, first: gate, why_gated=lambda pod: gate)
    w.show(None, make_pod("a"))
    w.now += 10
    await w.turns(2)
    assert w.reports.what("gated") == []


async def test_a_pod_bound_by_others_leaves_the_queue() -> None:
    """Also one that is being decided: nothing is committed for it."""
    w = LoopWorld(profile_of(Room()))
    pod = make_pod("a")
    w.show(None, pod)
    w.show(pod, bound_to(pod, "n2"))
    assert await w.turns() == 0
    assert len(w.queue) == 0

    second = make_pod("b")
    gate = Gate(on_look=lambda name: w.show(second, bound_to(second, "n2")) if name == "n1" else None)
    w = LoopWorld(profile_of(gate), step_budget=1)
    w.show(None, second)
    await w.turns(2)
    assert w.committer.committed == []
    assert w.reports.what("failed", "broken") == []
    assert len(w.queue) == 0


async def test_a_namesake_is_another_pod() -> None:
    """B102: deleted and created again while it was decided: the old one is not committed, the new one gets its turn."""
    old, new = make_pod("a"), make_pod("a", uid="second")
    done: list[str] = []

    def replace(name: str) -> None:
        if not done:
            done.append(name)
            w.show(old, None)
            w.show(None, new)

    w = LoopWorld(profile_of(Gate(on_look=replace)), step_budget=1)
    w.show(None, old)
    await w.turns(2)
    assert [placed.pod.uid for placed in w.committer.committed] == ["second"]
    assert len(w.queue) == 0


async def test_a_node_that_arrives_wakes_the_loop() -> None:
    """An idle loop sleeps until something is delivered."""
    w = LoopWorld(profile_of(Room()), nodes=())
    running = asyncio.create_task(w.loop.run())
    w.show(None, make_pod("a"))
    await asyncio.sleep(0.05)
    assert w.reports.what("failed") == [("failed", "a", "no nodes available to schedule pods")]
    w.loop.deliver([Change(NODE, None, make_node("n1"))], 2)
    w.now += 20
    w.loop.move([])
    w.loop._wake.set()
    async with asyncio.timeout(5):
        while not w.reports.what("bound"):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    w.loop.stop()
    await running


async def test_stop_waits_for_commits_under_way() -> None:
    """``run`` returns when the last write has ended, and takes no further Pod."""
    w = LoopWorld(profile_of(Room()))
    w.committer.hold = asyncio.Event()
    running = asyncio.create_task(w.loop.run())
    w.show(None, make_pod("a"))
    while not w.committer.committed:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.01)
    w.loop.stop()
    w.show(None, make_pod("b"))
    await asyncio.sleep(0.05)
    assert not running.done()
    w.committer.hold.set()
    await running
    assert w.reports.what("bound") == [("bound", "a", "n1")]
    assert w.places() == {"b": "active"}


@pytest.mark.parametrize("bound", [False, True])
async def test_what_was_said_of_a_pod_is_forgotten_when_it_waits_no_more(bound: bool) -> None:
    """It is deleted, or somebody binds it: else what was said of every Pod that ever waited would be kept."""
    w = LoopWorld(profile_of(Room()))
    pod = make_pod("a")
    w.show(None, pod)
    assert w.reports.what("waits no more") == []
    w.show(pod, bound_to(pod, "n1") if bound else None)
    assert w.reports.what("waits no more") == [("waits no more", "a", "")]
