"""A group's attempt: members on top of each other, all or nothing, and a state that is what it was."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import POD, convert
from scheduler.api.podgroups import POD_GROUP, PodGroup
from scheduler.cycle.attempt import Rotation
from scheduler.cycle.decision import Failed, Need, Rejected, Running
from scheduler.cycle.gang import GroupAttempt, GroupDecision, gang_profile, shortage
from scheduler.dra.features import Features
from scheduler.framework.cycle import Cycle
from scheduler.framework.instructions import DeallocateClaim
from scheduler.framework.plugin import PostFilterResult
from scheduler.framework.profile import Profile
from scheduler.framework.status import SUCCESS, Status, unschedulable
from scheduler.state.cluster import ClusterState
from tests.plugins.dynamic_resources.device_world import DeviceWorld, exactly


class Reserver:
    """Counts what is reserved and given back; ``no`` are the Pods it refuses, ``breaks`` those it breaks on."""

    name = "Reserver"

    def __init__(self, no: tuple[str, ...] = (), breaks: tuple[str, ...] = ()) -> None:
        self.no, self.breaks = no, breaks
        self.held: list[str] = []

    def reserve(self, cycle: Cycle, node: str) -> Status:
        self.held.append(cycle.pod.metadata.name)
        if cycle.pod.metadata.name in self.breaks:
            raise RuntimeError("out of order")
        return unschedulable("no") if cycle.pod.metadata.name in self.no else SUCCESS

    def unreserve(self, cycle: Cycle, node: str) -> tuple[()]:
        if cycle.pod.metadata.name in self.held:
            self.held.remove(cycle.pod.metadata.name)
        return ()


class Gang:
    """Devices on nodes and a gang whose members each have a claim of their own for some of them."""

    def __init__(self, devices: list[int], asks: list[int], min_count: int, shared: bool = False) -> None:
        self.world = DeviceWorld(Features(generic_workload=True, workload_claims=True))
        for index, count in enumerate(devices):
            self.world.node(f"n{index}", devices=count)
        entry = {"name": "shared", "resourceClaimName": "shared"}
        policy = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
        spec: dict[str, Any] = {"schedulingPolicy": policy, "resourceClaims": [entry] if shared else []}
        self.world.put(POD_GROUP, {"metadata": {"name": "g", "namespace": "default", "uid": "g-uid"}, "spec": spec})
        if shared:
            self.world.claim("shared")
        self.reserver = Reserver()
        self.profile = self.make_profile(self.reserver)
        self.pods = [self.member(f"p{index}", ask, [entry] if shared else []) for index, ask in enumerate(asks)]

    def make_profile(self, reserver: Reserver) -> Profile:
        return replace(self.world.profile, reserve=(self.world.plugin, reserver))

    def member(self, name: str, ask: int, entries: list[dict[str, str]]) -> Pod:
        if ask:
            self.world.claim(f"{name}-own", exactly(count=ask))
            entries = [*entries, {"name": "own", "resourceClaimName": f"{name}-own"}]
        spec = {"schedulingGroup": {"podGroupName": "g"}, "resourceClaims": entries}
        self.world.put(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        return self.state.pods[name]

    @property
    def state(self) -> ClusterState:
        return self.world.state

    @property
    def group(self) -> PodGroup:
        found = self.state.pod_groups.get("default", "g")
        assert found is not None
        return found

    def attempt(self) -> GroupAttempt:
        return GroupAttempt(gang_profile(self.profile), self.group, self.pods, self.state, now=0.0, rotation=Rotation())

    def decide(self, budget: int = 1000) -> GroupDecision:
        attempt = self.attempt()
        while True:
            outcome = attempt.step(budget)
            if isinstance(outcome, Need):
                attempt.answer("no edge here")
            elif not isinstance(outcome, Running):
                return outcome


def fingerprint(state: ClusterState) -> str:
    """Everything that decisions read, as text; versions only say that something moved."""
    nodes = state.nodes
    columns = {
        name: value.tolist()
        for name, value in sorted(vars(nodes).items())
        if isinstance(value, np.ndarray) and "version" not in name
    }
    placements = {uid: (placement.node, placement.assumed) for uid, placement in state.placements.items()}
    nominations = {uid: state.nominator.node_of(uid) for uid in state.pods}
    ledger = {str(key): repr(value) for key, value in state.devices.ledger.state().items()}
    claims = {key: msgspec.to_builtins(claim) for key, claim in state.devices.claims.items()}
    return json.dumps([columns, placements, nominations, ledger, claims], sort_keys=True, default=repr)


@settings(max_examples=60, deadline=None)
@given(
    devices=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    asks=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    lacking=st.integers(-2, 1),
    refused=st.sets(st.integers(0, 4)),
    shared=st.booleans(),
    budget=st.sampled_from([1, 1000]),
)
def test_a_group_that_fails_leaves_the_state_as_it_was_and_one_that_fits_has_its_minimum(
    devices: list[int], asks: list[int], lacking: int, refused: set[int], shared: bool, budget: int
) -> None:
    """Columns, placements, nominations, ledger and claims are equal again, and nothing is reserved any more."""
    gang = Gang(devices, asks, max(1, len(asks) + lacking), shared)
    gang.reserver.no = tuple(f"p{index}" for index in refused)
    gang.state.nominate(gang.pods[0], "n0")
    before = fingerprint(gang.state)
    decision = gang.decide(budget)
    gang.state.verify()
    placed = [member.pod.metadata.name for member in decision.members if member.placed is not None]
    assert len(decision.members) == len(asks)
    if decision.text:
        assert fingerprint(gang.state) == before
        assert gang.reserver.held == []
        return
    assert len(placed) >= gang.group.min_count
    assert sorted(gang.reserver.held) == sorted(placed)
    assert sorted(gang.state.placements) == sorted(placed)
    gang.attempt().abandon()  # of another attempt: takes back nothing that is not its own
    assert sorted(gang.state.placements) == sorted(placed)


def test_members_stand_on_what_the_ones_before_them_left() -> None:
    """Three members of one device each on 2 + 1 devices: every device is given once."""
    gang = Gang([2, 1], [1, 1, 1], 3)
    decision = gang.decide()
    assert decision.text == ""
    nodes = [member.placed.node for member in decision.members if member.placed is not None]
    assert sorted(nodes) == ["n0", "n0", "n1"]
    assert len(gang.state.devices.ledger.state()) == 3


def test_a_large_group_lets_others_run_between_its_members() -> None:
    """Each member costs the rows it may look at; when the budget is used up the attempt is suspended.

    Five more times for the first look at the devices of the two nodes and the questions whether they suit.
    """
    gang = Gang([4, 4], [1, 1, 1, 1], 4)
    attempt, suspended = gang.attempt(), 0
    while isinstance(attempt.step(6), Running):
        suspended += 1
    assert suspended == 2 + 5
    assert len(gang.state.placements) == 4


def test_it_ends_as_soon_as_the_minimum_is_out_of_reach() -> None:
    """The members after that are not tried; each that was says its own reasons."""
    gang = Gang([1], [1, 1, 1, 1], 3)
    decision = gang.decide()
    assert decision.text == "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"
    kinds = [type(member.decision).__name__ for member in decision.members]
    assert kinds == ["Placed", "Rejected", "Rejected", "NoneType"]
    assert gang.state.placements == {}


def test_too_few_waiting_members_are_not_tried_at_all() -> None:
    """Those that are missing may be held back for other reasons."""
    gang = Gang([4], [1, 1], 3)
    decision = gang.decide()
    assert decision.text == "minCount (3) cannot be satisfied: 0 scheduled, 2 remaining"
    assert {member.decision for member in decision.members} == {None}


def test_a_basic_group_keeps_whatever_fits() -> None:
    """No minimum, nothing is taken back."""
    gang = Gang([1], [1, 1], 0)
    decision = gang.decide()
    assert decision.text == ""
    assert [isinstance(member.decision, Rejected) for member in decision.members] == [False, True]
    assert sorted(gang.state.placements) == ["p0"]


def test_what_a_member_needs_of_the_edge_is_needed_for_that_member() -> None:
    """The instruction comes while the second Pod is decided, and its answer goes to it."""

    class Post:
        name = "Post"

        def post_filter(self, cycle: Cycle, statuses: Any) -> Any:
            failure = yield DeallocateClaim(cycle.state.devices.claims["default/p1-own"], "")
            return PostFilterResult(unschedulable(f"answer: {failure}"))

    gang = Gang([1], [1, 1], 0)
    gang.profile = replace(gang.profile, post_filter=(Post(),))
    attempt = gang.attempt()
    need = attempt.step(1 << 62)
    assert isinstance(need, Need)
    assert attempt.pod.metadata.name == "p1"
    attempt.answer("refused")
    decision = attempt.step(1 << 62)
    assert isinstance(decision, GroupDecision)
    second = decision.members[1].decision
    assert isinstance(second, Rejected)
    assert second.diagnosis.postfilter_message == "answer: refused"


def test_an_error_ends_the_cycle_for_all() -> None:
    """A plugin that breaks is no verdict: everything is taken back, and all members hear of it."""
    gang = Gang([4], [1, 1, 1], 2)
    gang.reserver.breaks = ("p1",)
    before = fingerprint(gang.state)
    decision = gang.decide()
    assert decision.error
    assert decision.text.startswith("failed to schedule other pod from a pod group: ")
    assert isinstance(decision.members[1].decision, Failed)
    assert decision.members[2].decision is None
    assert fingerprint(gang.state) == before


@pytest.mark.parametrize("how", ["deleted", "deleting", "placed by others"])
def test_a_member_that_goes_meanwhile_does_not_count(how: str) -> None:
    """Between two steps: the group lacks it then, and nobody keeps a place."""
    gang = Gang([4], [1, 1], 2)
    attempt = gang.attempt()
    one = gang.pods[0]

    class Going(Reserver):
        def reserve(self, cycle: Cycle, node: str) -> Status:
            if cycle.pod.metadata.name == "p1":
                self.go()
            return super().reserve(cycle, node)

        def go(self) -> None:
            if how == "deleted":
                gang.state.apply(Change(POD, one, None))
                return
            item = msgspec.to_builtins(one)
            if how == "deleting":
                item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            else:
                item["spec"]["nodeName"] = "n0"
                item["spec"]["schedulerName"] = "other"
            gang.state.apply(Change(POD, one, convert(POD, item)))

    going = Going()
    attempt.profile = gang.make_profile(going)
    outcome = attempt.step(1 << 62)
    assert isinstance(outcome, GroupDecision)
    if how == "placed by others":
        assert outcome.text == "", "it has a node, whoever gave it"
        assert sorted(gang.state.placements) == ["p0", "p1"]
        assert outcome.members[0].placed is None
    else:
        assert outcome.text == "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
        assert gang.state.placements == {}
        assert going.held == []
        assert gang.state.devices.ledger.state() == {}
    gang.state.verify()


def test_an_abandoned_attempt_gives_everything_back() -> None:
    """The loop is cancelled while a member asks the edge for something."""
    gang = Gang([4], [1, 1], 2)
    before = fingerprint(gang.state)
    attempt = gang.attempt()
    assert isinstance(attempt.step(1 << 62), GroupDecision)
    attempt.abandon()
    attempt.abandon()
    assert fingerprint(gang.state) == before


def test_what_nobody_foresaw_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of our own goes up after everything has been given back."""
    gang = Gang([4], [1, 1], 2)
    before = fingerprint(gang.state)

    def broken(min_count: int, scheduled: int, remaining: int) -> tuple[str, bool]:
        if not remaining:
            raise RuntimeError("unforeseen")
        return "", False

    monkeypatch.setattr("scheduler.cycle.gang.shortage", broken)
    with pytest.raises(RuntimeError, match="unforeseen"):
        gang.attempt().step(1 << 62)
    assert fingerprint(gang.state) == before
    assert not gang.state.pod_groups.promised_here("p0-own")


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((3, 3, 0), ("", False)),
        ((3, 1, 2), ("minCount (3) is not yet satisfied: 1 scheduled, 2 remaining", False)),
        ((3, 1, 1), ("minCount (3) cannot be satisfied: 1 scheduled, 1 remaining", True)),
        ((0, 0, 0), ("", False)),
    ],
)
def test_what_the_minimum_lacks(numbers: tuple[int, int, int], expected: tuple[str, bool]) -> None:
    """Upstream's two texts: not yet, and never."""
    assert shortage(*numbers) == expected


def test_members_of_a_gang_do_not_preempt() -> None:
    """Other PostFilter plugins stay."""

    class Post:
        def __init__(self, name: str) -> None:
            self.name = name

    kept, preemption = Post("DynamicResources"), Post("DefaultPreemption")
    assert gang_profile(Profile("x", {}, post_filter=(kept, preemption))).post_filter == (kept,)
