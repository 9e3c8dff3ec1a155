"""The committer: order of its calls, what each failure undoes, and what it never does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, convert
from scheduler.api.resource import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.cycle.decision import Placed
from scheduler.edge.binder import BindUnknownError, BoundElsewhereError, PodGoneError
from scheduler.edge.claim_errors import ClaimGoneError, ClaimInUseError, ClaimTakenError, ClaimUnknownError
from scheduler.edge.commit import UNKNOWN_PAUSE_S, UNKNOWN_ROUNDS, Committer
from scheduler.edge.commit_ports import CommitOutcome
from scheduler.edge.errors import AnswerLost, ApiError, ApiUnavailable, NotLeading
from scheduler.errors import ClusterError
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import ClusterEvent
from scheduler.framework.instructions import BindPod, CreateClaim, UnreserveClaim, WaitUntil, WriteClaim
from scheduler.framework.timings import Timings
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info
from tests.cycle.attempt_world import make_node, profile_of

CONSUMER = ConsumerReference("", "pods", "p", "uid-p")


def allocation(device: str) -> AllocationResult:
    result = {"request": "r", "driver": "d", "pool": "n1", "device": device}
    found: AllocationResult = convert(
        RESOURCE_CLAIM, {"status": {"allocation": {"devices": {"results": [result]}}}}
    ).status.allocation
    return found


def claim(name: str, version: int, device: str = "", consumers: Iterable[str] = ()) -> ResourceClaim:
    status: dict[str, Any] = {"reservedFor": [{"resource": "pods", "name": c, "uid": f"uid-{c}"} for c in consumers]}
    if device:
        result = {"request": "r", "driver": "d", "pool": "n1", "device": device}
        status["allocation"] = {"devices": {"results": [result]}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}
    found: ResourceClaim = convert(RESOURCE_CLAIM, {"metadata": metadata, "status": status})
    return found


def pod(*claims: str) -> Pod:
    entries = [{"name": name, "resourceClaimName": name} for name in claims]
    metadata = {"name": "p", "namespace": "default", "uid": "uid-p"}
    found: Pod = convert(POD, {"metadata": metadata, "spec": {"schedulerName": "test", "resourceClaims": entries}})
    return found


class Calls:
    """Claim writes, Bindings and the watch in one: records each call, fails where told to."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.fail: dict[str, list[Exception]] = {}
        self.before: dict[str, Callable[[], None]] = {}
        self.version = 100
        self.reached = True

    def _enter(self, call: str) -> None:
        self.log.append(call)
        if call in self.before:
            self.before.pop(call)()
        if self.fail.get(call):
            raise self.fail[call].pop(0)
        self.version += 1

    async def allocate(
        self, claim_: ResourceClaim, given: AllocationResult, consumer: ConsumerReference
    ) -> ResourceClaim:
        name = claim_.metadata.name
        self._enter(f"allocate {name}")
        return claim(name, self.version, given.devices.results[0].device, [consumer.name])

    async def reserve(self, claim_: ResourceClaim, consumer: ConsumerReference) -> ResourceClaim:
        self._enter(f"reserve {claim_.metadata.name}")
        return self._like(claim_, [*(c.name for c in claim_.consumers), consumer.name])

    async def unreserve(self, claim_: ResourceClaim, pod_uid: str) -> ResourceClaim:
        self._enter(f"unreserve {claim_.metadata.name}")
        return self._like(claim_, [c.name for c in claim_.consumers if c.uid != pod_uid])

    async def deallocate(
        self, claim_: ResourceClaim, pod_uid: str = "", expected: AllocationResult | None = None
    ) -> ResourceClaim:
        self._enter(f"deallocate {claim_.metadata.name}")
        return claim(claim_.metadata.name, self.version)

    def _like(self, claim_: ResourceClaim, consumers: list[str]) -> ResourceClaim:
        stored = claim_.status.allocation
        device = stored.devices.results[0].device if stored is not None else ""
        return claim(claim_.metadata.name, self.version, device, consumers)

    async def bind(self, pod_: Pod, node: str) -> None:
        self._enter(f"bind {node}")

    async def wait_revision(self, revision: int, timeout_s: float) -> bool:
        self._enter(f"wait {revision}")
        return self.reached


class Steps:
    """One plugin with Reserve, PreBind and Bind whose instructions the test gives."""

    name = "Steps"

    def __init__(self, instructions: Iterable[Any] = (), undo: Iterable[Any] = ()) -> None:
        self.instructions, self.undo_instructions = list(instructions), list(undo)
        self.undone = 0
        self.on_undo: Callable[[], object] = lambda: None

    def reserve(self, cycle: Cycle, node: str) -> None:
        raise NotImplementedError

    def unreserve(self, cycle: Cycle, node: str) -> Any:
        self.undone += 1
        self.on_undo()
        return self.undo_instructions

    def pre_bind(self, cycle: Cycle, node: str) -> Any:
        return self.instructions


class CommitWorld:
    """A committer on a state with node n1, its devices, some claims and one Pod."""

    def __init__(self, steps: Steps, *claims: ResourceClaim, devices: Iterable[str] = ("x", "y")) -> None:
        self.calls, self.events, self.steps = Calls(), list[ClusterEvent](), steps
        self.pauses_s: list[float] = []
        self.state = ClusterState()
        self.node = make_node("n1")
        self.state.apply(Change(NODE, None, self.node))
        pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "d", "nodeName": "n1", "pool": pool, "devices": [{"name": name} for name in devices]}
        self.slice = convert(RESOURCE_SLICE, {"metadata": {"name": "s", "uid": "s"}, "spec": spec})
        self.state.apply(Change(RESOURCE_SLICE, None, self.slice))
        for found in claims:
            self.state.apply(Change(RESOURCE_CLAIM, None, found))
        self.pod = pod(*(found.metadata.name for found in claims if found.metadata.name != "other"))
        self.state.apply(Change(POD, None, self.pod))
        self.state.assume(self.pod, "n1")
        profile = profile_of(steps)
        binder = profile.bind[0]
        binder.bind = lambda cycle, node: BindPod(cycle.pod, node)
        cycle = Cycle(self.pod, pod_info(self.pod), self.state)
        self.placed = Placed(self.pod, profile, cycle, "n1", self.node.metadata.uid, None, 1, 1)
        self.committer = Committer(
            self.state,
            self.calls,  # type: ignore[arg-type]  # answers with objects the server would not store
            None,  # type: ignore[arg-type]  # no instruction here speaks of made claims
            None,  # type: ignore[arg-type]  # nor of volumes
            self.calls,
            self.calls,
            self.events.extend,
            sleep=self._sleep,
        )

    async def _sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        await asyncio.sleep(0)

    async def commit(self) -> CommitOutcome:
        return await self.committer.commit(self.placed, self.state.devices.promised(self.pod))


def write(found: ResourceClaim, device: str) -> WriteClaim:
    return WriteClaim(found, CONSUMER, allocation(device))


async def test_claims_then_watch_then_binding() -> None:
    """B54: every claim is written, the watch has passed the last write, then the Pod is bound."""
    a, b = claim("a", 1), claim("b", 2)
    w = CommitWorld(Steps([write(a, "x"), write(b, "y")]), a, b)
    outcome = await w.commit()
    assert outcome == CommitOutcome(bound=True)
    assert w.calls.log == ["allocate a", "allocate b", "wait 102", "bind n1"]
    assert w.steps.undone == 0


@pytest.mark.parametrize("failing", ["allocate a", "allocate b", "wait 102", "bind n1"])
async def test_each_failing_call_is_undone_once(failing: str) -> None:
    """B52: no Binding after a failed write, one Unreserve, and the text says what failed."""
    a, b = claim("a", 1), claim("b", 2)
    w = CommitWorld(Steps([write(a, "x"), write(b, "y")]), a, b)
    w.calls.fail[failing] = [ClusterError("refused")]
    outcome = await w.commit()
    assert not outcome.bound
    assert outcome.text.endswith("refused")
    assert w.steps.undone == 1
    assert w.calls.log.count("bind n1") == (1 if failing == "bind n1" else 0)
    if failing.startswith("allocate"):
        assert outcome.text.startswith('running PreBind plugin "Steps": ')


async def test_an_undo_that_fails_does_not_keep_the_next_one() -> None:
    """One claim cannot be unreserved: the other still is."""
    a, b = claim("a", 1, "x", ["p"]), claim("b", 2, "y", ["p"])
    w = CommitWorld(Steps((), [UnreserveClaim(a, "uid-p"), UnreserveClaim(b, "uid-p")]), a, b)
    w.calls.fail = {"bind n1": [ClusterError("refused")], "unreserve a": [ClusterError("away")]}
    outcome = await w.commit()
    assert outcome.text.endswith("refused")
    assert w.calls.log == ["wait 2", "bind n1", "unreserve a", "unreserve b"]


async def test_a_plugin_that_raises_is_named() -> None:
    """PreBind raises: nothing is written, the text names the plugin."""

    class Raising(Steps):
        def pre_bind(self, cycle: Cycle, node: str) -> Any:
            raise ValueError("boom")

    w = CommitWorld(Raising())
    outcome = await w.commit()
    assert outcome.text == 'running PreBind plugin "Steps": ValueError: boom'
    assert (w.calls.log, w.steps.undone) == ([], 1)


async def test_a_binding_of_unknown_fate_keeps_its_room_until_it_is_known() -> None:
    """Asked for again until the server says what became of it; nothing is undone meanwhile."""
    w = CommitWorld(Steps())
    w.calls.fail["bind n1"] = [BindUnknownError("default/p", "no answer"), BindUnknownError("default/p", "no answer")]
    outcome = await w.commit()
    assert outcome.bound
    assert w.calls.log == ["bind n1"] * 3
    assert w.pauses_s == [UNKNOWN_PAUSE_S] * 2
    assert w.steps.undone == 0


async def test_a_pod_that_goes_while_its_binding_is_unknown_is_let_go() -> None:
    """The watch shows the Pod deleted: asking ends."""
    w = CommitWorld(Steps())
    w.calls.fail["bind n1"] = [BindUnknownError("default/p", "no answer")] * 5
    w.calls.before["bind n1"] = lambda: w.state.apply(Change(POD, w.pod, None)) and None
    outcome = await w.commit()
    assert outcome.gone
    assert w.calls.log == ["bind n1"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PodGoneError("default/p", "gone"), CommitOutcome(gone=True)),
        (
            BoundElsewhereError("default/p", "n2"),
            CommitOutcome(gone=True, lost=True, text="pod default/p is already assigned to node n2"),
        ),
    ],
)
async def test_answers_of_the_binder(error: Exception, expected: CommitOutcome) -> None:
    """A Pod that is gone is dropped in silence; one that is elsewhere is a lost race, and no failure to report."""
    w = CommitWorld(Steps())
    w.calls.fail["bind n1"] = [error]
    outcome = await w.commit()
    assert (outcome.gone, outcome.lost, outcome.bound) == (expected.gone, expected.lost, False)
    assert outcome.text.endswith(expected.text)
    assert w.steps.undone == 1


async def test_a_claim_taken_by_others_is_a_lost_race() -> None:
    """Another allocation is stored: our device is not written, and the race is counted."""
    a = claim("a", 1)
    w = CommitWorld(Steps([write(a, "x")]), a)
    w.calls.fail["allocate a"] = [ClaimTakenError("default/a")]
    outcome = await w.commit()
    assert outcome.lost
    assert "elsewhere" in outcome.text


async def test_a_pod_deleted_between_two_writes_stops_the_second() -> None:
    """B110: the next claim is not written for a Pod that is gone."""
    a, b = claim("a", 1), claim("b", 2)
    w = CommitWorld(Steps([write(a, "x"), write(b, "y")]), a, b)
    w.calls.before["allocate a"] = lambda: w.state.apply(Change(POD, w.pod, None)) and None
    outcome = await w.commit()
    assert outcome.gone
    assert w.calls.log == ["allocate a"]


async def test_devices_withdrawn_before_the_second_write() -> None:
    """B42: asked again before each write, not once for all."""
    a, b = claim("a", 1), claim("b", 2)
    w = CommitWorld(Steps([write(a, "x"), write(b, "y")]), a, b)
    spec = msgspec.structs.replace(w.slice.spec, devices=w.slice.spec.devices[:1])
    smaller = msgspec.structs.replace(w.slice, spec=spec)
    w.calls.before["allocate a"] = lambda: w.state.apply(Change(RESOURCE_SLICE, w.slice, smaller)) and None
    outcome = await w.commit()
    assert outcome.text == "device d/n1/y for claim default/b is no longer published for node n1"
    assert w.calls.log == ["allocate a"]


async def test_a_watch_that_lags_gives_everything_back() -> None:
    """Past the bound nothing can be said about the order: all allocations of this commit are cleared."""
    a, b = claim("a", 1), claim("b", 2)
    w = CommitWorld(Steps([write(a, "x"), write(b, "y")]), a, b)
    w.calls.reached = False
    outcome = await w.commit()
    assert outcome.lost
    assert "did not reach revision 102 within 10 s" in outcome.text
    assert w.calls.log == ["allocate a", "allocate b", "wait 102", "deallocate a", "deallocate b"]


async def test_giving_back_goes_on_after_a_failure() -> None:
    """One claim is in use by others and stays, one cannot be written and is mentioned, the third is cleared."""
    claims = [claim("a", 1), claim("b", 2), claim("c", 3)]
    writes = [write(found, device) for found, device in zip(claims, "xyz", strict=True)]
    w = CommitWorld(Steps(writes), *claims, devices="xyz")
    w.calls.reached = False
    w.calls.fail = {
        "deallocate a": [ClaimInUseError("default/a", [], claims[0])],
        "deallocate b": [ClusterError("away")],
    }
    outcome = await w.commit()
    # The first one is asked for again once the Pod has left it: others may have left it, too.
    assert w.calls.log[-4:] == ["deallocate a", "deallocate b", "deallocate c", "deallocate a"]
    assert outcome.text.endswith("; claim default/b could not be given back: away")


@pytest.mark.parametrize(
    ("error", "undone"),
    [
        (ClaimGoneError("default/a", claim("a", 7, "x", ["p"])), ["unreserve a"]),
        (ClaimUnknownError("default/a", "no answer"), ["unreserve a"]),
        (ClaimTakenError("default/a", claim("a", 7, "y", ["q"])), []),
        (ClaimGoneError("default/a"), []),
    ],
)
async def test_a_reservation_that_may_be_stored_unseen_is_taken_out(error: Exception, undone: list[str]) -> None:
    """The answer was lost, and then the claim is being deleted: the watch has not shown our name in it yet."""
    a = claim("a", 1)
    w = CommitWorld(Steps([write(a, "x")]), a)
    w.calls.fail = {"allocate a": [error]}
    assert not (await w.commit()).bound
    assert w.calls.log == ["allocate a", *undone]


@pytest.mark.parametrize("stored", [True, False])
async def test_devices_of_a_write_whose_fate_is_unknown_do_not_look_free(stored: bool) -> None:
    """They stay promised until the server says what it has; then they are the claim's, or free."""
    a = claim("a", 1)
    w = CommitWorld(Steps([write(a, "x")]), a)
    ledger = w.state.devices.ledger
    ledger.set_in_flight("uid-a", "default/a", allocation("x"), 1)
    w.steps.on_undo = lambda: ledger.drop_in_flight("uid-a", True)
    unknown = ClaimUnknownError("default/a", "no answer")
    spoken = [ApiUnavailable("refused"), NotLeading("late"), ApiError(401, "Unauthorized")]
    w.calls.fail = {"allocate a": [unknown], "unreserve a": [unknown, AnswerLost("cut"), *spoken]}
    seen: list[bool] = []

    def look() -> None:
        seen.append(ledger.in_flight("uid-a") is not None)
        if len(seen) < 6:
            w.calls.before["unreserve a"] = look
        elif stored:
            w.state.apply(Change(RESOURCE_CLAIM, a, claim("a", 500, "x"), 500))

    w.calls.before["unreserve a"] = look
    assert not (await w.commit()).bound
    assert seen == [True] * 6
    assert w.pauses_s == [UNKNOWN_PAUSE_S] * 5
    assert ledger.in_flight("uid-a") is None
    entry = ledger.entry("uid-a")
    assert (entry is not None and entry.stored is not None) is stored


async def test_waiting_for_the_fate_of_a_write_holds_no_slot_and_ends() -> None:
    """A server that stays away, or an answer that nobody can read, must not keep 32 slots, nor a device for ever."""
    a = claim("a", 1)
    w = CommitWorld(Steps([write(a, "x")]), a)
    unknown = ClaimUnknownError("default/a", "?")
    w.calls.fail = {"allocate a": [unknown], "unreserve a": [AnswerLost("not readable")] * (UNKNOWN_ROUNDS + 9)}
    aside: list[int] = []

    @asynccontextmanager
    async def note() -> AsyncIterator[None]:
        aside.append(len(w.calls.log))
        yield
        aside.append(len(w.calls.log))

    w.committer.aside = note
    assert not (await w.commit()).bound
    assert aside == [2, 2 + UNKNOWN_ROUNDS]
    assert w.steps.undone == 1


async def test_the_fate_of_a_claim_made_for_extended_resources_is_waited_for_too() -> None:
    """It is asked for before the plugin deletes it and lets its devices go."""
    a = claim("a", 1)
    created: list[ResourceClaim] = []
    w = CommitWorld(Steps([CreateClaim(a, CONSUMER, allocation("x"), created.append)]), a)

    async def create(found: ResourceClaim) -> ResourceClaim:
        return found

    w.committer.performer.pod_claims = SimpleNamespace(create=create)  # type: ignore[assignment]  # all that is asked
    unknown = ClaimUnknownError("default/a", "?")
    w.calls.fail = {"allocate a": [unknown], "unreserve a": [unknown]}
    w.steps.on_undo = lambda: w.calls.log.append("undone")
    assert not (await w.commit()).bound
    assert w.calls.log == ["allocate a", "unreserve a", "unreserve a", "undone"]


async def test_a_scheduler_that_stops_does_not_wait_for_the_fate_of_a_write() -> None:
    """Who leads next finds out."""
    a = claim("a", 1)
    w = CommitWorld(Steps([write(a, "x")]), a)
    w.calls.fail = {"allocate a": [ClaimUnknownError("default/a", "?")], "unreserve a": [ApiUnavailable("gone")] * 9}
    w.calls.before["unreserve a"] = w.committer.stop
    await w.commit()
    assert w.calls.log == ["allocate a", "unreserve a"]


async def test_the_one_who_was_first_keeps_the_device() -> None:
    """Another claim with the same device was stored before our write: ours is cleared."""
    a = claim("a", 1)
    w = CommitWorld(Steps([write(a, "x")]), a)
    w.calls.before["wait 101"] = lambda: (
        w.state.apply(Change(RESOURCE_CLAIM, None, claim("other", 50, "x", ["q"]), 50)) and None
    )
    outcome = await w.commit()
    assert outcome.lost
    assert outcome.text == "device d/n1/x of claim default/a is held by claim default/other, which was first"
    assert w.calls.log == ["allocate a", "wait 101", "deallocate a"]


async def test_the_one_who_was_second_is_reported() -> None:
    """Stored after our write: we bind, and the pair is in the outcome."""
    a = claim("a", 1)
    w = CommitWorld(Steps([write(a, "x")]), a)
    w.calls.before["wait 101"] = lambda: (
        w.state.apply(Change(RESOURCE_CLAIM, None, claim("other", 150, "x", ["q"]), 150)) and None
    )
    outcome = await w.commit()
    assert outcome.bound
    assert outcome.overlaps == ["device d/n1/x of claim default/a: also default/other"]


@pytest.mark.parametrize(("others", "on_node", "bound"), [((), "", False), (("q",), "", False), (("q",), "n2", True)])
async def test_an_allocation_found_stored_is_verified_until_a_bound_pod_counts_on_it(
    others: tuple[str, ...], on_node: str, bound: bool
) -> None:
    """Left behind unverified, or about to be lost by the Pod that wrote it, it may collide; once a Pod that shares the
    claim is on a node, one more Pod takes nothing from anybody.
    """
    held = claim("a", 60, "x", ["p", *others])
    w = CommitWorld(Steps(), held, claim("other", 50, "x", ["z"]))
    metadata = {"name": "q", "namespace": "default", "uid": "uid-q"}
    w.state.apply(Change(POD, None, convert(POD, {"metadata": metadata, "spec": {"nodeName": on_node}})))
    outcome = await w.commit()
    assert outcome.bound is bound
    assert w.calls.log == (["bind n1"] if bound else ["wait 60", "deallocate a"])


async def test_the_last_of_two_losers_gives_the_shared_claim_back() -> None:
    """Each Pod finds the other in the claim and leaves it: whoever leaves last clears what both have lost."""
    held = claim("a", 60, "x", ["p", "q"])
    undo = [UnreserveClaim(held, "uid-p")]
    for last in (True, False):
        w = CommitWorld(Steps((), undo), held, claim("other", 50, "x", ["z"]))
        in_use = [ClaimInUseError("default/a", [], held) for _ in range(1 if last else 2)]
        w.calls.fail = {"deallocate a": list(in_use)}
        outcome = await w.commit()
        assert outcome.lost
        assert "held by claim default/other, which was first" in outcome.text
        assert w.calls.log == ["wait 60", "deallocate a", "unreserve a", "deallocate a"]
        assert w.calls.fail["deallocate a"] == []


async def test_a_wait_ends_with_its_answer() -> None:
    """Asked at once and after each interval; a text is a failure; past the time-out the given text."""
    w = CommitWorld(Steps())
    w.steps.instructions = [WaitUntil(lambda: "" if len(w.pauses_s) == 2 else None, 10.0, 4.0, "too late")]
    assert (await w.commit()).bound
    assert w.pauses_s == [4.0, 4.0]

    w = CommitWorld(Steps([WaitUntil(lambda: "device failed", 10.0, 4.0, "too late")]))
    assert (await w.commit()).text == 'running PreBind plugin "Steps": device failed'

    w = CommitWorld(Steps([WaitUntil(lambda: None, 10.0, 4.0, "too late")]))
    assert (await w.commit()).text == 'running PreBind plugin "Steps": too late'
    assert w.pauses_s == [4.0, 4.0, 2.0]


async def test_how_a_wait_for_binding_conditions_ended_is_counted() -> None:
    """success, failure or timeout, per driver."""
    ends: list[tuple[tuple[str, ...], str]] = []

    class Counting(Timings):
        def waited(self, drivers: Iterable[str], status: str, began: float) -> None:
            ends.append((tuple(drivers), status))

    async def wait(ready: Callable[[], str | None], timeout_text: str = "device binding timeout: too late") -> None:
        w = CommitWorld(Steps([WaitUntil(ready, 10.0, 4.0, timeout_text, drivers=("d",))]))
        w.placed = replace(w.placed, profile=replace(w.placed.profile, timings=Counting()))
        await w.commit()

    await wait(lambda: "")
    await wait(lambda: "device failed")
    await wait(lambda: None)
    assert ends == [(("d",), "success"), (("d",), "failure"), (("d",), "timeout")]


async def test_a_pod_deleted_during_a_wait() -> None:
    """The wait ends with the Pod."""
    w = CommitWorld(Steps())

    def delete() -> None:
        w.state.apply(Change(POD, w.pod, None))

    w.steps.instructions = [WaitUntil(delete, 10.0, 4.0, "late")]
    assert (await w.commit()).gone
    assert w.pauses_s == [4.0]


@pytest.mark.parametrize("again", [False, True])
async def test_a_node_that_is_gone_or_another_one(again: bool) -> None:
    """No Binding to a node that was deleted, nor to a new one of its name."""
    w = CommitWorld(Steps())
    w.state.apply(Change(NODE, w.node, None))
    if again:
        w.state.apply(Change(NODE, None, make_node("n1", uid="second")))
    outcome = await w.commit()
    assert (outcome.lost, outcome.text) == (True, "node n1 is gone")
    assert w.calls.log == []


async def test_mid_cycle_instructions_answer_with_their_failure() -> None:
    """PostFilter hears None for done, else why not."""
    a = claim("a", 1, "x", ["p"])
    w = CommitWorld(Steps(), a)
    assert await w.committer.perform(w.pod, UnreserveClaim(a, "uid-p")) is None
    w.calls.fail["unreserve a"] = [ClusterError("away")]
    assert await w.committer.perform(w.pod, UnreserveClaim(a, "uid-p")) == "away"
