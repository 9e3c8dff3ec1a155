"""Snapshots and journals of a state: performed on an empty state they make the same state, orders included."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, Kind, convert
from scheduler.audit.operations import Operation, Operations, encode
from scheduler.audit.recorded import RecordedState
from scheduler.audit.recorder import Recorder
from scheduler.audit.snapshot import snapshot
from scheduler.dra.features import Features
from scheduler.state.cluster import ClusterState
from tests.app.objects import Object, claim, gpu_slice, node, pod

NODES = [f"n{number}" for number in range(4)]
PODS = [f"p{number}" for number in range(6)]
CLAIMS = [f"c{number}" for number in range(4)]
names = st.sampled_from


class Lines:
    """A journal in memory."""

    def __init__(self) -> None:
        self.snapshots = self.snapshot_lines = 0
        self.lines: list[bytes] = []
        self.wanted = True
        self.refuses = False
        self.given_up: list[str] = []

    def wants_snapshot(self) -> bool:
        return self.wanted

    def begin(self, position: int, operations: list[Operation]) -> None:
        self.wanted = False
        self.snapshots += 1
        self.lines = [encode(position, operation) for operation in operations]
        self.snapshot_lines = len(self.lines)

    def put(self, position: int, operation: Operation) -> bool:
        if self.refuses:
            self.wanted = True
            return False
        self.lines.append(encode(position, operation))
        return True

    def give_up(self, why: str) -> None:
        self.given_up.append(why)
        self.wanted = True


def performed(lines: list[bytes], snapshot_lines: int) -> ClusterState:
    """An empty state after these lines."""
    state = ClusterState(Features())
    operations = Operations(state)
    for number, line in enumerate(lines):
        operations.orders = number >= snapshot_lines
        if number == snapshot_lines:
            state.nodes.order()
        operations.perform(operations.decode(line)[1])
    return state


def facts(state: ClusterState) -> dict[str, Any]:
    """Everything that decisions can depend on, in the orders they see."""
    nodes = state.nodes
    order = [nodes.name_of(row) for row in nodes.order().tolist()]
    plain = msgspec.to_builtins
    return {
        "order": order,
        "on": {name: [info.uid for info in nodes.pods_on(name)] for name in sorted({*order, *NODES})},
        "requested": {name: int(nodes.requested("cpu")[nodes.row_of(name)]) for name in order},
        "pods": [plain(found) for found in state.pods.values()],
        "placements": [(uid, placed.node, placed.assumed) for uid, placed in state.placements.items()],
        "nominated": [(name, [info.uid for info in state.nominator.on(name)]) for name in state.nominator.nodes()],
        "victims": sorted(state.victims),
        "claims": [plain(found) for found in state.devices.claims.values()],
        "held": dict(state.devices.ledger.state()),
        "flights": sorted((uid, key, str(plain(result))) for uid, key, result in state.devices.ledger.flights()),
        "sharers": {uid: state.devices.ledger.entry(uid).sharers for uid, _, _ in state.devices.ledger.flights()},  # type: ignore[union-attr]
        "slices": [plain(info.slice) for info in state.devices.slices.infos()],
    }


class Journalled(RuleBasedStateMachine):
    """Random changes, assumptions and flights; snapshots in between."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = Lines()
        self.recorder = Recorder(self.journal, "run")
        self.state = self.recorder.state(Features())
        self.revision = 1
        self.shown: dict[tuple[str, str], Any] = {}

    def show(self, kind: Kind, body: Object | None, name: str) -> None:
        """As a watch shows it: the old version is the one it showed before."""
        self.revision += 1
        old = self.shown.pop((kind.name, name), None)
        new = None
        if body is not None:
            uid = old.metadata.uid if old is not None else f"uid-{name}-{self.revision}"
            body["metadata"] |= {"uid": uid, "resourceVersion": str(self.revision)}
            new = self.shown[(kind.name, name)] = convert(kind, body)
        if old is not None or new is not None:
            self.state.apply(Change(kind, old, new, self.revision))

    def pod(self, name: str) -> Pod | None:
        found = self.shown.get((POD.name, name))
        return None if found is None else self.state.pods.get(found.uid)

    @rule(name=names(NODES), zone=names(["", "a", "b"]), cpu=names(["4", "8"]))
    def node_shown(self, name: str, zone: str, cpu: str) -> None:
        body = node(name, cpu)
        if zone:
            body["metadata"]["labels"]["topology.kubernetes.io/zone"] = zone
        self.show(NODE, body, name)

    @rule(name=names(NODES))
    def node_gone(self, name: str) -> None:
        self.show(NODE, None, name)

    @rule(name=names(NODES), count=st.integers(1, 3))
    def slice_shown(self, name: str, count: int) -> None:
        self.show(RESOURCE_SLICE, gpu_slice(name, count), f"{name}-gpu")

    @rule(name=names(PODS), cpu=names(["100m", "2"]), on=names(["", "", *NODES]), nominated=names(["", "", *NODES]))
    def pod_shown(self, name: str, cpu: str, on: str, nominated: str) -> None:
        before = self.shown.get((POD.name, name))
        body = pod(name, cpu=cpu)
        bound = before.spec.nodeName if before is not None and before.spec.nodeName else on
        body["spec"]["nodeName"] = bound
        body["status"] = {"nominatedNodeName": "" if bound else nominated}
        self.show(POD, body, name)

    @rule(name=names(PODS))
    def pod_gone(self, name: str) -> None:
        self.show(POD, None, name)

    @rule(name=names(PODS), on=names(NODES))
    def assumed(self, name: str, on: str) -> None:
        found = self.pod(name)
        if found is not None and found.uid not in self.state.placements:
            self.state.assume(found, on)

    @rule(name=names(PODS))
    def forgotten(self, name: str) -> None:
        found = self.pod(name)
        if found is not None:
            self.state.forget(found)

    @rule(name=names(PODS), on=names(["", *NODES]))
    def nominated(self, name: str, on: str) -> None:
        found = self.pod(name)
        if found is not None:
            self.state.nominate(found, on)

    @rule(name=names(PODS), spared=st.booleans())
    def victim(self, name: str, spared: bool) -> None:
        found = self.pod(name)
        if found is not None:
            (self.state.spare_victims if spared else self.state.choose_victims)([found.uid, "gone long ago"])

    @rule(name=names(CLAIMS), device=st.integers(-1, 2), learnt=st.booleans())
    def claim_shown(self, name: str, device: int, learnt: bool) -> None:
        body = claim(name)
        if device >= 0:
            body["status"] = {"allocation": _allocation(device)}
        known = self.shown.get((RESOURCE_CLAIM.name, name))
        if not learnt or known is None:
            self.show(RESOURCE_CLAIM, body, name)
            return
        self.revision += 1
        body["metadata"] |= {"uid": known.uid, "resourceVersion": str(self.revision)}
        self.state.learn_claim(convert(RESOURCE_CLAIM, body))

    @rule(name=names(CLAIMS))
    def claim_gone(self, name: str) -> None:
        self.show(RESOURCE_CLAIM, None, name)

    @rule(name=names(CLAIMS), device=st.integers(0, 2))
    def flies(self, name: str, device: int) -> None:
        known = self.shown.get((RESOURCE_CLAIM.name, name))
        if known is not None:
            body = claim(name)
            body["status"] = {"allocation": _allocation(device)}
            allocation = convert(RESOURCE_CLAIM, body).status.allocation
            self.state.devices.ledger.set_in_flight(known.uid, known.key, allocation)

    @rule(name=names(CLAIMS), force=st.booleans())
    def lands(self, name: str, force: bool) -> None:
        known = self.shown.get((RESOURCE_CLAIM.name, name))
        if known is not None:
            self.state.devices.ledger.drop_in_flight(known.uid, force)

    @rule()
    def new_part(self) -> None:
        """The current part is full: the next one begins with a snapshot."""
        self.journal.wanted = True
        self.recorder._next(self.state)

    @invariant()
    def the_journal_makes_the_same_state(self) -> None:
        if not self.journal.wanted:
            made = performed(self.journal.lines, self.journal.snapshot_lines)
            made.verify()
            assert facts(made) == facts(self.state)

    @invariant()
    def a_snapshot_makes_the_same_state(self) -> None:
        if self.journal.wanted:
            self.state.nodes.renew_order()
            lines = [encode(0, operation) for operation in snapshot(self.state)]
            made = performed(lines, len(lines))
            made.verify()
            assert facts(made) == facts(self.state)


def _allocation(device: int) -> Object:
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "n0", "device": f"gpu-{device}"}
    return {"devices": {"results": [result]}}


TestJournalled = Journalled.TestCase
TestJournalled.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_the_order_of_nominations_comes_along() -> None:
    """Two Pods on one node, one on another, nominated the other way round than the watch showed them."""
    state = ClusterState(Features())
    for number, (name, on) in enumerate((("a", "n1"), ("b", "n1"), ("c", "n2"))):
        body = pod(name)
        body["metadata"] |= {"uid": name, "resourceVersion": str(number + 1)}
        body["status"] = {"nominatedNodeName": on}
        state.apply(Change(POD, None, convert(POD, body), number + 1))
    for name, on in (("a", "n2"), ("b", ""), ("c", "n1"), ("a", "n1"), ("b", "n2")):
        state.nominate(state.pods[name], on)
    lines = [encode(0, operation) for operation in snapshot(state)]
    assert facts(performed(lines, len(lines))) == facts(state)


def test_a_journal_that_refuses_ends_the_part_and_harms_nobody() -> None:
    """Changes go on; the next decision begins a new part, which is complete again."""
    journal = Lines()
    recorder = Recorder(journal, "run")
    state = recorder.state(Features())
    assert isinstance(state, RecordedState)
    state.apply(Change(NODE, None, convert(NODE, node("n1"))))
    recorder._next(state)
    journal.refuses = True
    state.apply(Change(NODE, None, convert(NODE, node("n2"))))
    assert recorder.decision_of("anybody") is None
    journal.refuses = False
    recorder._next(state)
    assert facts(performed(journal.lines, journal.snapshot_lines))["order"] == ["n1", "n2"]
    assert journal.snapshots == 2


def test_a_recorder_that_breaks_is_told_and_costs_nothing() -> None:
    """An answer that cannot be made ends the recording's part, not the attempt."""
    journal = Lines()
    recorder = Recorder(journal, "run")
    state = recorder.state(Features())
    recorder._next(state)

    def broken() -> Any:
        raise RuntimeError("no answer")

    recorder.tell("decided", "run-j1", broken)
    assert journal.given_up == ["RuntimeError: no answer"]
    recorder.tell("decided", "run-j1", broken)
    assert len(journal.given_up) == 1
