"""ClusterState: after any sequence of events the derived numbers are those of a state built from scratch."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler.api.changes import Change
from scheduler.api.core import Node, Pod
from scheduler.api.kinds import NAMESPACE, NODE, POD, RESOURCE_CLAIM, convert
from scheduler.api.resource import ResourceClaim
from scheduler.dra.ledger import NOT_SHOWN
from scheduler.dra.verify import Lost, Verdict, WonPair, verify_allocation
from scheduler.errors import InternalError
from scheduler.state.cluster import ClusterState
from scheduler.state.events import Action, ClusterEvent, Resource

NODES = ("n1", "n2", "n3")
PODS = ("a", "b", "c", "d")


def node(name: str, uid: str = "1", cpu: str = "8") -> Node:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    metadata = {"name": name, "uid": f"{name}-{uid}", "labels": {"zone": uid}}
    found: Node = convert(NODE, {"metadata": metadata, "status": {"allocatable": amounts}})
    return found


def pod(name: str, on: str = "", *, uid: str = "1", phase: str = "", cpu: str = "1", **metadata: Any) -> Pod:
    item = {
        "metadata": {"name": name, "namespace": "default", "uid": f"{name}-{uid}", **metadata},
        "spec": {
            "nodeName": on,
            "containers": [
                {"name": "c", "resources": {"requests": {"cpu": cpu}}, "ports": [{"hostPort": 80, "containerPort": 80}]}
            ],
        },
        "status": {"phase": phase},
    }
    found: Pod = convert(POD, item)
    return found


def claim(version: int, device: str = "", *, uid: str = "1", name: str = "c") -> ResourceClaim:
    status: dict[str, Any] = {}
    if device:
        result = {"request": "r", "driver": "d", "pool": "p", "device": device}
        status["allocation"] = {"devices": {"results": [result]}}
    metadata = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(version)}
    found: ResourceClaim = convert(RESOURCE_CLAIM, {"metadata": metadata, "status": status})
    return found


def labels(events: list[ClusterEvent]) -> list[str]:
    return [event.label for event in events]


def rebuilt(state: ClusterState, nodes: dict[str, Node]) -> ClusterState:
    """A fresh state that is told the present only."""
    fresh = ClusterState()
    for found in nodes.values():
        fresh.apply(Change(NODE, None, found))
    for found in state.pods.values():
        fresh.apply(Change(POD, None, found))
    for placement in state.placements.values():
        if placement.assumed:
            fresh.assume(placement.info.pod, placement.node)
    for found in state.devices.claims.values():
        fresh.apply(Change(RESOURCE_CLAIM, None, found))
    return fresh


class ClusterMachine(RuleBasedStateMachine):
    """Nodes and Pods come, change, move, end and go; Pods are assumed, confirmed, forgotten; claims are written."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState()
        self.nodes: dict[str, Node] = {}
        self.stored: dict[str, Pod] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.revision = 0

    @rule(name=st.sampled_from(NODES), uid=st.sampled_from("12"), cpu=st.sampled_from("48"))
    def node_comes_or_changes(self, name: str, uid: str, cpu: str) -> None:
        old, new = self.nodes.get(name), node(name, uid, cpu)
        if old is not None and old.metadata.uid != new.metadata.uid:
            self.state.apply(Change(NODE, old, None))
            old = None
        self.state.apply(Change(NODE, old, new))
        self.nodes[name] = new

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        old = self.nodes.pop(name, None)
        if old is not None:
            self.state.apply(Change(NODE, old, None))

    @rule(
        name=st.sampled_from(PODS),
        on=st.sampled_from(("", *NODES, "unknown")),
        phase=st.sampled_from(("", "Running", "Succeeded", "Failed")),
        cpu=st.sampled_from("12"),
        label=st.sampled_from("xy"),
    )
    def pod_comes_or_changes(self, name: str, on: str, phase: str, cpu: str, label: str) -> None:
        old = self.stored.get(name)
        if old is not None and old.spec.nodeName:
            on = old.spec.nodeName  # once bound, a Pod stays where it is
        new = pod(name, on, phase=phase, cpu=cpu, labels={"l": label})
        self.state.apply(Change(POD, old, new))
        self.stored[name] = new

    @rule(name=st.sampled_from(PODS))
    def pod_goes(self, name: str) -> None:
        old = self.stored.pop(name, None)
        if old is not None:
            self.state.apply(Change(POD, old, None))

    @rule(name=st.sampled_from(PODS), on=st.sampled_from(NODES))
    def pod_is_assumed(self, name: str, on: str) -> None:
        found = self.stored.get(name)
        if found is not None and found.uid in self.state.pods and found.uid not in self.state.placements:
            self.state.assume(found, on)

    @rule(name=st.sampled_from(PODS))
    def pod_is_forgotten(self, name: str) -> None:
        found = self.stored.get(name)
        if found is not None:
            placement = self.state.placements.get(found.uid)
            events = self.state.forget(found)
            assert bool(events) == (placement is not None and placement.assumed)

    @precondition(lambda self: self.revision < 40)
    @rule(name=st.sampled_from("cd"), device=st.sampled_from(("", "x", "y")), learnt=st.booleans())
    def claim_is_written(self, name: str, device: str, learnt: bool) -> None:
        self.revision += 1
        old, new = self.claims.get(name), claim(self.revision, device, name=name, uid=name)
        if learnt:
            self.state.learn_claim(new)
            if old is None:
                return  # nobody knew it: the watch will bring it
        self.state.apply(Change(RESOURCE_CLAIM, old, new))
        self.claims[name] = new

    @rule(name=st.sampled_from("cd"))
    def claim_goes(self, name: str) -> None:
        old = self.claims.pop(name, None)
        if old is not None:
            self.state.apply(Change(RESOURCE_CLAIM, old, None))

    @invariant()
    def as_from_scratch(self) -> None:
        self.state.verify()
        fresh = rebuilt(self.state, self.nodes)
        assert self.state.nodes.describe() == fresh.nodes.describe()
        assert self.state.placements.keys() == fresh.placements.keys()
        assert self.state.devices.ledger.state() == fresh.devices.ledger.state()

    @invariant()
    def pods_are_those_that_did_not_end(self) -> None:
        assert set(self.state.pods) == {found.uid for found in self.stored.values() if not found.terminal}


TestCluster = ClusterMachine.TestCase
TestCluster.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.fixture
def state() -> ClusterState:
    found = ClusterState()
    for name in NODES:
        found.apply(Change(NODE, None, node(name)))
    return found


def test_a_waiting_pod_is_no_event(state: ClusterState) -> None:
    """A Pod without node is the queue's business only."""
    assert state.apply(Change(POD, None, pod("a"))) == []
    assert state.apply(Change(POD, pod("a"), None)) == []
    assert state.placements == {}


def test_a_pod_that_gets_its_node_is_added(state: ClusterState) -> None:
    """Seen for the first time on a node, bound by others, or confirmed after we assumed it: AssignedPod Add."""
    assert labels(state.apply(Change(POD, None, pod("a", "n1")))) == ["AssignedPodAdd"]
    state.apply(Change(POD, None, pod("b")))
    assert labels(state.apply(Change(POD, pod("b"), pod("b", "n1")))) == ["AssignedPodAdd"]
    state.apply(Change(POD, None, pod("c")))
    state.assume(pod("c"), "n1")
    assert state.assumed_count() == 1
    assert labels(state.apply(Change(POD, pod("c"), pod("c", "n1")))) == ["AssignedPodAdd"]
    assert state.assumed_count() == 0
    assert state.forget(pod("c")) == []
    assert int(state.nodes.pod_counts[state.nodes.row_with_pods("n1")]) == 3


def test_a_pod_bound_elsewhere_gives_its_assumed_room_back(state: ClusterState) -> None:
    """We counted it on n1, somebody bound it to n2: those who wait for room hear of n1's, too."""
    state.apply(Change(POD, None, pod("a")))
    state.assume(pod("a"), "n1")
    events = state.apply(Change(POD, pod("a"), pod("a", "n2")))
    assert labels(events) == ["AssignedPodAdd", "AssignedPodDelete"]
    assert [len(state.nodes.pods_on(name)) for name in ("n1", "n2")] == [0, 1]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_uses_nothing(state: ClusterState, phase: str) -> None:
    """B117: terminal is gone; terminating counts until then."""
    state.apply(Change(POD, None, pod("a", "n1")))
    going = pod("a", "n1", deletionTimestamp="2026-01-01T00:00:00Z")
    state.apply(Change(POD, pod("a", "n1"), going))
    row = state.nodes.row_with_pods("n1")
    assert int(state.nodes.requested("cpu")[row]) == 1000
    assert labels(state.apply(Change(POD, going, pod("a", "n1", phase=phase)))) == ["AssignedPodDelete"]
    assert int(state.nodes.requested("cpu")[row]) == 0
    assert state.apply(Change(POD, pod("a", "n1", phase=phase), None)) == []


def test_an_assumed_pod_that_is_deleted_frees_its_room(state: ClusterState) -> None:
    """The room is free at once, and forgetting it afterwards frees nothing twice."""
    state.apply(Change(POD, None, pod("a")))
    state.assume(pod("a"), "n1")
    assert labels(state.apply(Change(POD, pod("a"), None))) == ["AssignedPodDelete"]
    assert state.forget(pod("a")) == []
    state.verify()


def test_a_pod_that_a_restored_store_shows_without_its_node_waits_again(state: ClusterState) -> None:
    """It takes no room, and the others hear that it went; what we only assume stays."""
    bound, unbound = pod("a", "n1"), pod("a")
    state.apply(Change(POD, None, bound))
    assert labels(state.apply(Change(POD, bound, unbound))) == ["AssignedPodDelete"]
    assert not state.placements
    state.verify()
    state.assume(unbound, "n2")
    assert state.apply(Change(POD, unbound, pod("a", labels={"x": "y"}))) == []
    assert state.placements["a-1"].node == "n2"
    state.verify()


def test_assuming_twice_is_our_bug(state: ClusterState) -> None:
    """It would count one Pod on two nodes."""
    state.assume(pod("a"), "n1")
    with pytest.raises(InternalError, match="already counted on node n1"):
        state.assume(pod("a"), "n2")


def test_node_events(state: ClusterState) -> None:
    """Add, one event per changed aspect, Delete; a heartbeat is none; Pods of a deleted node stay counted."""
    new = node("n4")
    assert labels(state.apply(Change(NODE, None, new))) == ["NodeAdd"]
    state.apply(Change(POD, None, pod("a", "n4")))
    assert state.apply(Change(NODE, new, msgspec.structs.replace(new))) == []
    assert labels(state.apply(Change(NODE, new, node("n4", cpu="4")))) == ["NodeUpdateNodeAllocatable"]
    assert labels(state.apply(Change(NODE, node("n4", cpu="4"), None))) == ["NodeDelete"]
    state.apply(Change(NODE, None, node("n4", uid="2")))
    assert int(state.nodes.pod_counts[state.nodes.row_with_pods("n4")]) == 1
    state.verify()


def test_what_we_wrote_is_known_before_the_watch_and_moves_the_version(state: ClusterState) -> None:
    """The answer to a write enters at once, its echo changes nothing, and suspended attempts notice."""
    state.apply(Change(RESOURCE_CLAIM, None, claim(1)))
    version = state.version
    assert labels(state.learn_claim(claim(2, "x"))) == ["resource.k8s.io/ResourceClaimUpdate"]
    assert state.version > version
    assert state.apply(Change(RESOURCE_CLAIM, claim(1), claim(2, "x"))) == []
    assert state.apply(Change(RESOURCE_CLAIM, claim(1), claim(1))) == []
    assert len(list(state.devices.allocated())) == 1


@pytest.mark.parametrize(
    ("shown", "appeared"),
    [
        ([(3, "gpu-0"), (5, "gpu-0")], 3),
        ([(5, "gpu-0")], 5),
        ([(2, "gpu-0"), (3, ""), (4, "gpu-0"), (5, "gpu-0")], 4),
        ([(2, "gpu-1"), (4, "gpu-0")], 4),
        ([(2, "gpu-0"), (3, "")], NOT_SHOWN),
        ([], NOT_SHOWN),
    ],
)
def test_where_an_allocation_appeared_is_told_by_the_watch(
    state: ClusterState, shown: list[tuple[int, str]], appeared: int
) -> None:
    """Not by the answer to a write: that may have changed a claim that was allocated before, unseen by us."""
    ledger = state.devices.ledger
    state.apply(Change(RESOURCE_CLAIM, None, claim(1)))
    state.learn_claim(claim(5, "gpu-0"))
    assert ledger.first_allocated_revision("1") == NOT_SHOWN
    for version, device in shown:
        state.apply(Change(RESOURCE_CLAIM, None, claim(version, device), version))
    assert ledger.first_allocated_revision("1") == appeared
    state.apply(Change(RESOURCE_CLAIM, None, claim(6, "gpu-0"), 6))
    later = None if appeared == NOT_SHOWN else appeared
    assert ledger.first_allocated_revision("1") == later, "the same allocation; a watch that skipped it tells nothing"
    state.verify()


@pytest.mark.parametrize(("listed", "appeared"), [("gpu-0", None), ("", NOT_SHOWN), ("gpu-1", NOT_SHOWN)])
def test_a_list_does_not_tell_where_an_allocation_appeared(
    state: ClusterState, listed: str, appeared: int | None
) -> None:
    """It may have skipped versions; but what it does not show comes later."""
    state.apply(Change(RESOURCE_CLAIM, None, claim(1)))
    state.learn_claim(claim(5, "gpu-0"))
    state.apply(Change(RESOURCE_CLAIM, None, claim(4, listed), 4, True))
    assert state.devices.ledger.first_allocated_revision("1") == appeared


def test_of_two_allocations_of_ours_the_first_keeps_the_device(state: ClusterState) -> None:
    """Both are known by their answers; each is judged when the watch has come to it."""
    state.apply(Change(RESOURCE_CLAIM, None, claim(1)))
    state.apply(Change(RESOURCE_CLAIM, None, claim(2, uid="2", name="d")))
    first, second = claim(5, "gpu-0"), claim(6, "gpu-0", uid="2", name="d")
    state.learn_claim(first)
    state.learn_claim(second)

    def verdict(uid: str, revision: int) -> Verdict:
        return verify_allocation(state.devices.ledger, uid, revision, lambda device: {}, lambda pool: None)

    state.apply(Change(RESOURCE_CLAIM, None, first, 5))
    assert isinstance(verdict("1", 5), WonPair)
    state.apply(Change(RESOURCE_CLAIM, None, second, 6))
    assert isinstance(verdict("1", 5), WonPair)
    assert isinstance(verdict("2", 6), Lost)


def test_a_new_claim_under_an_old_name_is_nobodys_namesake(state: ClusterState) -> None:
    """One uid under two names, one of them with an allocation in flight: the third claim keeps its device."""
    first = claim(1, "gpu-0")
    state.apply(Change(RESOURCE_CLAIM, None, first))
    assert first.status.allocation is not None
    state.devices.ledger.set_in_flight("1", "default/c", first.status.allocation)
    state.apply(Change(RESOURCE_CLAIM, None, claim(2, "gpu-1", name="spoilt")))
    state.apply(Change(RESOURCE_CLAIM, None, claim(3, "gpu-2", uid="2")))
    state.apply(Change(RESOURCE_CLAIM, None, claim(4, "gpu-1", name="spoilt")))
    assert sorted(state.devices.claims) == ["default/c", "default/spoilt"]
    assert {key.device for key in state.devices.ledger.state()} >= {"gpu-1", "gpu-2"}
    state.verify()


def test_an_answer_for_a_replaced_claim_is_not_taken(state: ClusterState) -> None:
    """The claim was deleted and created again meanwhile: the old one's answer says nothing of the new one."""
    state.apply(Change(RESOURCE_CLAIM, None, claim(3, uid="2")))
    assert state.learn_claim(claim(4, "x", uid="1")) == []
    state.apply(Change(RESOURCE_CLAIM, claim(3, uid="2"), None))
    assert state.learn_claim(claim(5, "x", uid="2")) == []
    assert state.devices.ledger.state() == {}


def test_a_claim_that_comes_under_another_name_is_no_more_under_its_first(state: ClusterState) -> None:
    """The server never shows one uid twice; if something does, devices stay held by exactly one claim."""
    first, second = claim(1, "gpu-0"), claim(2, "gpu-1", name="spoilt")
    state.apply(Change(RESOURCE_CLAIM, None, first))
    assert labels(state.apply(Change(RESOURCE_CLAIM, None, second))) == [
        "resource.k8s.io/ResourceClaimDelete",
        "resource.k8s.io/ResourceClaimAdd",
    ]
    state.verify()
    assert [key.device for key in state.devices.ledger.state()] == ["gpu-1"]
    state.apply(Change(RESOURCE_CLAIM, None, claim(3, "gpu-0")))
    assert state.apply(Change(RESOURCE_CLAIM, second, None)) == []
    state.verify()
    assert [key.device for key in state.devices.ledger.state()] == ["gpu-0"]
    assert list(state.devices.claims) == ["default/c"]


def test_a_promise_that_comes_free_is_an_event() -> None:
    """In flight, never stored: whoever waits for the devices hears of it once, also when the claim itself is gone."""
    state = ClusterState()
    state.apply(Change(RESOURCE_CLAIM, None, claim(1)))
    asking = convert(
        POD,
        {
            "metadata": {"name": "a", "namespace": "default", "uid": "a"},
            "spec": {"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]},
        },
    )
    allocation = claim(2, "x").status.allocation
    assert allocation is not None
    ledger = state.devices.ledger
    assert state.devices.promised(asking) == []
    ledger.set_in_flight("1", "default/c", allocation)
    promised = state.devices.promised(asking)
    assert [item.allocation for item in promised] == [allocation]
    assert state.devices.released(promised) == []
    ledger.drop_in_flight("1")
    (event,) = state.devices.released(promised)
    assert (event.action, event.old.status.allocation, event.new.status.allocation) == (
        Action.UPDATE_OTHER,
        allocation,
        None,
    )
    state.apply(Change(RESOURCE_CLAIM, claim(1), None))
    (event,) = state.devices.released(promised)
    assert (event.resource, event.action, event.new) == (Resource.RESOURCE_CLAIM, Action.DELETE, None)
    state.apply(Change(RESOURCE_CLAIM, None, claim(3, "x")))
    assert state.devices.released(promised) == []


def test_verify_notices_a_lost_placement(state: ClusterState) -> None:
    """A Pod that is shown on a node and not counted there, or the other way round."""
    state.apply(Change(POD, None, pod("a", "n1")))
    placement = state.placements.pop("a-1")
    with pytest.raises(InternalError, match="is on node n1 but counted as None"):
        state.verify()
    state.placements["a-1"] = placement
    state.verify()
    del state.pods["a-1"]
    with pytest.raises(InternalError, match="counted on node n1 but not there"):
        state.verify()


def test_namespaces_are_kept(state: ClusterState) -> None:
    """Their labels, for namespace selectors."""
    space = convert(NAMESPACE, {"metadata": {"name": "team", "labels": {"a": "b"}}})
    assert state.apply(Change(NAMESPACE, None, space)) == []
    assert state.namespaces == {"team": {"a": "b"}}
    state.apply(Change(NAMESPACE, space, None))
    assert state.namespaces == {}
