"""A ClusterState, small plugins whose answers a test decides, and a profile of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from scheduler.api.changes import Change
from scheduler.api.core import Node, Pod
from scheduler.api.kinds import NODE, POD, convert
from scheduler.cycle.attempt import Attempt, Rotation
from scheduler.cycle.decision import Decision, Need, Running
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.plugin import PostFilterResult, PreFilterResult, Rows, Scores, Verdicts
from scheduler.framework.profile import Profile, build_profile
from scheduler.framework.status import SUCCESS, Code, Status, VerdictTable
from scheduler.state.cluster import ClusterState
from scheduler.state.nodes import NodeTable


def make_node(name: str, uid: str = "", labels: Mapping[str, str] | None = None, cpu: str = "8") -> Node:
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    item = {
        "metadata": {"name": name, "uid": uid or f"uid-{name}", "labels": dict(labels or {})},
        "status": {"allocatable": amounts},
    }
    found: Node = convert(NODE, item)
    return found


def make_pod(name: str = "p", nominated: str = "", cpu: str = "1", node_name: str = "", **metadata: Any) -> Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    item = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **metadata},
        "spec": {"schedulerName": "test", "containers": containers, "nodeName": node_name},
        "status": {"nominatedNodeName": nominated},
    }
    found: Pod = convert(POD, item)
    return found


def state_of(*names: str) -> ClusterState:
    state = ClusterState()
    for name in names:
        state.apply(Change(NODE, None, make_node(name)))
    return state


class Sort:
    """Queue order and binding, which every profile must have."""

    name = "Sort"

    def sort_key(self, pod: Pod, timestamp: float) -> Any:
        return timestamp

    def bind(self, cycle: Cycle, node: str) -> None:
        return None


class Gate:
    """Filters node by node with ``rule(node name)``, one budget step each; ``looked`` lists what was asked.

    ``on_look`` runs before each node is looked at.
    """

    name = "Gate"

    def __init__(
        self, rule: Callable[[str], bool] = lambda name: True, on_look: Callable[[str], None] = lambda name: None
    ) -> None:
        self.verdicts = VerdictTable(self.name)
        self.no = self.verdicts.intern(Code.UNSCHEDULABLE, ("closed",))
        self.rule, self.on_look = rule, on_look
        self.looked: list[str] = []

    def filter_steps(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Iterator[None]:
        verdicts: Verdicts = np.zeros(len(rows), dtype=np.int64)
        for place, row in enumerate(rows.tolist()):
            name = nodes.name_of(row)
            self.looked.append(name)
            self.on_look(name)
            verdicts[place] = 0 if self.rule(name) else self.no
            if cycle.budget.charge(1):
                yield
        return verdicts


class Room:
    """A column filter on cpu, so that assumed Pods matter."""

    name = "Room"

    def __init__(self) -> None:
        self.verdicts = VerdictTable(self.name)
        self.no = self.verdicts.intern(Code.UNSCHEDULABLE, ("full",))

    def events(self) -> Sequence[Registration]:
        return (Registration(Resource.NODE, Action.ADD),)

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        free = nodes.allocatable("cpu")[rows] - nodes.requested("cpu")[rows]
        verdicts: Verdicts = np.where(free >= cycle.info.requests["cpu"], 0, self.no)
        return verdicts


class Names:
    """Limits the search to a set of nodes, or answers with any status."""

    def __init__(self, answer: object, name: str = "Names") -> None:
        self.name = name
        self.answer = answer

    def pre_filter(self, cycle: Cycle) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Like:
    """Scores nodes by name; counts how often it was asked."""

    name = "Like"

    def __init__(self, scores: Mapping[str, int]) -> None:
        self.scores, self.asked = scores, 0

    def score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        self.asked += 1
        return np.asarray([self.scores.get(nodes.name_of(row), 0) for row in rows.tolist()], dtype=np.int64)


class After:
    """A PostFilter made of a generator function of (cycle, statuses)."""

    def __init__(self, body: Callable[..., Generator[Any, str | None, PostFilterResult]], name: str = "After") -> None:
        self.name = name
        self.body = body

    def post_filter(self, cycle: Cycle, statuses: Mapping[str, Status]) -> Any:
        return self.body(cycle, statuses)


POINTS = (
    ("preFilter", "pre_filter"),
    ("filter", "filter"),
    ("filter", "filter_steps"),
    ("postFilter", "post_filter"),
    ("preScore", "pre_score"),
    ("score", "score"),
    ("reserve", "reserve"),
    ("preBind", "pre_bind"),
)


def profile_of(*plugins: Any, percentage: int = 0) -> Profile:
    """A profile that calls the plugins in this order."""
    sort = Sort()
    order: dict[str, list[tuple[str, int]]] = {"queueSort": [("Sort", 1)], "bind": [("Sort", 1)]}
    for plugin in plugins:
        for point, method in POINTS:
            if hasattr(plugin, method):
                order.setdefault(point, []).append((plugin.name, 1))
    found = {plugin.name: plugin for plugin in (sort, *plugins)}
    return build_profile("test", found, order, percentage)


def attempt_of(
    state: ClusterState, *plugins: Any, pod: Pod | None = None, rotation: Rotation | None = None, percentage: int = 0
) -> Attempt:
    pod = pod or make_pod()
    if pod.uid not in state.pods:
        state.apply(Change(POD, None, pod))
    profile = profile_of(*plugins, percentage=percentage)
    return Attempt(profile, pod, state, now=1000.0, rotation=rotation or Rotation())


def finish(attempt: Attempt, budget: int, between: Callable[[int], None] = lambda step: None) -> Decision:
    """Step to the end; ``between`` is called with the number of each suspension."""
    count = 0
    while True:
        outcome = attempt.step(budget)
        assert not isinstance(outcome, Need)
        if not isinstance(outcome, Running):
            return outcome
        count += 1
        between(count)
        assert count < 10_000


def passes(names: frozenset[str] | None = None) -> PreFilterResult:
    return PreFilterResult(SUCCESS, names)
