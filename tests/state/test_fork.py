"""A fork holds the same objects and the same promises, decides alike, and changing it leaves the original alone."""

from __future__ import annotations

from collections.abc import Generator

from hypothesis import given, settings

from scheduler.api.changes import Change
from scheduler.api.kinds import RESOURCE_CLAIM
from scheduler.api.resource import AllocationResult
from scheduler.state.cluster import ClusterState
from scheduler.state.fork import OBJECTS_PER_STEP, fork, fork_steps
from tests.app.objects import node, pod
from tests.explain.clusters import Object, held, snapshot
from tests.explain.test_consistency import clusters


def facts(state: ClusterState) -> object:
    """Everything that decisions read, in a form that can be compared."""
    order = state.nodes.order().tolist()
    return (
        [state.nodes.node(row) for row in order],
        [sorted(info.uid for info in state.nodes.pods(row)) for row in order],
        dict(state.pods),
        {uid: (placed.node, placed.assumed) for uid, placed in state.placements.items()},
        dict(state.devices.claims),
        {str(key): repr(value) for key, value in state.devices.ledger.state().items()},
        [info.slice for info in state.devices.slices.infos()],
        dict(state.namespaces),
        {node: sorted(info.uid for info in state.nominator.on(node)) for node in state.nominator.nodes()},
    )


@settings(max_examples=40, deadline=None)
@given(clusters())
def test_a_fork_is_equal_and_independent(items: list[Object]) -> None:
    """Same facts, sound caches; taking everything out of the fork changes nothing in the original."""
    state = snapshot(items).state
    before = facts(state)
    copy = fork(state)
    assert facts(copy) == before
    copy.verify()
    for claim in list(copy.devices.claims.values()):
        copy.apply(Change(RESOURCE_CLAIM, claim, None))
    copy.verify()
    assert facts(state) == before
    state.verify()


def test_promises_come_along() -> None:
    """An assumed Pod, an allocation in flight, a nomination and a victim are in no object yet, but they count."""
    snap = snapshot([node("n1"), node("n2"), pod("p"), pod("q")])
    state = snap.state
    state.assume(snap.pod("default", "p"), "n1")
    state.nominate(snap.pod("default", "q"), "n2")
    state.choose_victims([snap.pod("default", "p").uid])
    allocation = AllocationResult()
    state.devices.ledger.set_in_flight("claim-uid", "default/claim", allocation)
    copy = fork(state)
    assert facts(copy) == facts(state)
    assert copy.devices.ledger.in_flight("claim-uid") is allocation
    assert copy.victims == {snap.pod("default", "p").uid}
    assert copy.nominator.node_of(snap.pod("default", "q").uid) == "n2"


def test_a_fork_shows_the_state_of_its_first_step() -> None:
    """What happens to the original between the steps does not reach the fork."""
    items = [node("n1"), *(held(f"h{number}", "n1", f"d{number}") for number in range(3 * OBJECTS_PER_STEP))]
    state = snapshot(items).state
    before = facts(state)
    steps = fork_steps(state)
    next(steps)
    state.apply(Change(RESOURCE_CLAIM, state.devices.claims["default/h299"], None))
    count, copy = run(steps)
    assert facts(copy) == before
    assert count >= 3


def run(steps: Generator[None, None, ClusterState]) -> tuple[int, ClusterState]:
    """How many steps it took, and the fork."""
    count = 0
    while True:
        count += 1
        try:
            next(steps)
        except StopIteration as stop:
            return count, stop.value
