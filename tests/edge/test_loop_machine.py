"""Any order of Pods, nodes, Bindings, failures and deletions: no Pod falls out, no room is kept for nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from scheduler.api.changes import Change
from scheduler.api.core import Node, Pod
from scheduler.api.kinds import NODE
from scheduler.cycle.decision import Placed
from scheduler.edge.commit_ports import CommitOutcome
from scheduler.framework.events import Action, Registration, Resource
from tests.cycle.attempt_world import Gate, Room, make_node, make_pod, profile_of

from .loop_world import LoopWorld

OUTCOMES = st.sampled_from(("bound", "bound", "refused", "lost", "raise"))
PODS, NODES = ("a", "b", "c", "d"), ("n1", "n2")


class Waking(Room):
    """Room that is tried again when a Pod goes or a node comes."""

    def events(self) -> Any:
        return (Registration(Resource.ASSIGNED_POD, Action.DELETE), Registration(Resource.NODE, Action.ADD))


class LoopMachine(RuleBasedStateMachine):
    """The API server's side is ``stored`` and ``nodes``; commits end as the last ``*_from_now_on`` rule said."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.new_event_loop()
        self.w = LoopWorld(profile_of(Waking(), Gate()), nodes=(), step_budget=1)
        self.stored: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.serial = 0
        self.outcome = "bound"
        self.w.committer.answer = self._commit
        self.w.committer.hold = asyncio.Event()
        self.w.committer.hold.set()
        for name in NODES:
            self.node_comes_or_goes(name, True)

    def teardown(self) -> None:
        assert self.w.committer.hold is not None
        self.w.committer.hold.set()
        self.runner.run_until_complete(self.w.loop.finish_commits())
        self.nothing_is_lost()
        self.runner.close()

    def _commit(self, placed: Placed) -> CommitOutcome:
        """What the API server would say: a Pod that is gone cannot be bound."""
        name = placed.pod.metadata.name
        current = self.stored.get(name)
        if current is None or current.uid != placed.pod.uid:
            return CommitOutcome(gone=True)
        if self.outcome == "raise":
            raise ZeroDivisionError("boom")
        if self.outcome != "bound":
            return CommitOutcome(text="refused", lost=self.outcome == "lost")
        return CommitOutcome(bound=True)

    def _next(self) -> str:
        self.serial += 1
        return str(self.serial)

    @rule(
        name=st.sampled_from(PODS),
        cpu=st.sampled_from(("1", "5", "8")),
        turns=st.integers(0, 2),
        outcome=OUTCOMES,
        held=st.booleans(),
    )
    def pod_comes(self, name: str, cpu: str, turns: int, outcome: str, held: bool) -> None:
        self.outcome = outcome
        self.writes_take_long_or_end(held)
        if name not in self.stored:
            number = self._next()
            self.stored[name] = make_pod(name, cpu=cpu, uid=f"{name}-{number}", resourceVersion=number)
            self.w.show(None, self.stored[name])
        self.the_loop_turns(turns, 0)

    @rule(name=st.sampled_from(PODS))
    def pod_changes(self, name: str) -> None:
        old = self.stored.get(name)
        if old is not None:
            number = self._next()
            metadata = msgspec.structs.replace(old.metadata, resourceVersion=number, labels={"l": number})
            self.stored[name] = msgspec.structs.replace(old, metadata=metadata)
            self.w.show(old, self.stored[name])

    @rule(name=st.sampled_from(PODS))
    def pod_goes(self, name: str) -> None:
        old = self.stored.pop(name, None)
        if old is not None:
            self.w.show(old, None)

    @rule(name=st.sampled_from(PODS), node=st.sampled_from(NODES))
    def pod_is_bound_by_others_or_confirmed(self, name: str, node: str) -> None:
        old = self.stored.get(name)
        if old is not None and not old.spec.nodeName:
            placement = self.w.state.placements.get(old.uid)
            target = node if placement is None else placement.node
            spec = msgspec.structs.replace(old.spec, nodeName=target)
            metadata = msgspec.structs.replace(old.metadata, resourceVersion=self._next())
            self.stored[name] = msgspec.structs.replace(old, spec=spec, metadata=metadata)
            self.w.show(old, self.stored[name])

    @rule(name=st.sampled_from(NODES), comes=st.booleans())
    def node_comes_or_goes(self, name: str, comes: bool) -> None:
        old = self.nodes.pop(name, None)
        if old is not None:
            self.w.loop.deliver([Change(NODE, old, None)], 1)
        if comes:
            self.nodes[name] = make_node(name, uid=f"{name}-{self._next()}")
            self.w.loop.deliver([Change(NODE, None, self.nodes[name])], 1)

    @rule(outcome=OUTCOMES)
    def commits_end_from_now_on(self, outcome: str) -> None:
        self.outcome = outcome

    @rule(held=st.booleans())
    def writes_take_long_or_end(self, held: bool) -> None:
        assert self.w.committer.hold is not None
        (self.w.committer.hold.clear if held else self.w.committer.hold.set)()
        self.runner.run_until_complete(self._breathe())

    @staticmethod
    async def _breathe() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    @rule(count=st.integers(0, 4), seconds=st.sampled_from((0, 1, 11, 400)))
    def the_loop_turns(self, count: int, seconds: int) -> None:
        self.w.now += seconds
        self.runner.run_until_complete(self.w.turns(count))

    @invariant()
    def numbers_agree(self) -> None:
        self.w.loop.check()
        told = [error for _, _, error in self.w.reports.what("broken") if "ZeroDivisionError: boom" not in error]
        assert told == []

    @invariant()
    def nothing_is_lost(self) -> None:
        """Every Pod without a node is in the queue, or counted on a node; nobody else is."""
        placements = self.w.state.placements
        waiting = {found.uid for found in self.stored.values() if not found.spec.nodeName}
        for uid in waiting:
            assert self.w.queue.get(uid) is not None or uid in placements, self.w.queue.dump()
        assert placements.keys() <= {found.uid for found in self.stored.values()}
        if not self.w.loop._commits:
            flying = [record for record in self.w.queue.dump() if record["place"] == "inFlight"]
            assert flying == []
            queued = {str(record["uid"]) for record in self.w.queue.dump()}
            assert queued <= waiting
            assert not queued & placements.keys()

    @invariant()
    def nodes_are_not_overfull_by_us(self) -> None:
        """Room is counted from the decision on, so two decisions never share it (Pods bound by others aside)."""
        for name in self.nodes:
            row = self.w.state.nodes.row_of(name)
            assert row is not None
            ours = [p.info for p in self.w.state.placements.values() if p.assumed and p.node == name]
            assert sum(info.requests["cpu"] for info in ours) <= 8000


TestLoop = LoopMachine.TestCase
TestLoop.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
