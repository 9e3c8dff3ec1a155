"""What is kept per class of Pods equals what would be asked anew, and only changed rows are asked about."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.api.changes import Change
from scheduler.api.core import Node, Pod
from scheduler.api.kinds import DEVICE_CLASS, NODE, POD, convert
from scheduler.api.workloads import SERVICE
from scheduler.app.profiles import build_profiles
from scheduler.config import load_config
from scheduler.cycle.attempt import Attempt, Rotation, decide
from scheduler.cycle.decision import Placed, Rejected
from scheduler.errors import InternalError
from scheduler.framework import vectors
from scheduler.framework.profile import Profile
from scheduler.state.cluster import ClusterState

ZONE = "topology.kubernetes.io/zone"


def new_profile(state: ClusterState) -> Profile:
    ids = itertools.count()
    profiles = build_profiles(load_config(""), state, lambda: f"id-{next(ids)}", state.features)
    return next(iter(profiles.values()))


def uncached(profile: Profile) -> Profile:
    """The same plugins, every row asked about every time."""
    profile.classes.find = lambda *_: None  # type: ignore[method-assign]  # the one switch a user never has
    profile.templates.of = lambda *_: None  # type: ignore[method-assign]  # as above
    return profile


def node(name: str, **changes: Any) -> Node:
    item: dict[str, Any] = {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {ZONE: changes.pop("zone", "a")}},
        "spec": {"taints": changes.pop("taints", []), "unschedulable": changes.pop("cordoned", False)},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "6", **changes.pop("more", {})},
            "images": [{"names": [image], "sizeBytes": 900_000_000} for image in changes.pop("images", ())],
        },
    }
    assert not changes
    found: Node = convert(NODE, item)
    return found


TAINTS = [
    [],
    [{"key": "k", "value": "v", "effect": "NoSchedule"}],
    [{"key": "soft", "effect": "PreferNoSchedule"}],
]
NODES: list[dict[str, Any]] = [
    {},
    {"zone": "b"},
    {"zone": "b", "taints": TAINTS[1]},
    {"taints": TAINTS[2], "images": ["app:1"]},
    {"cordoned": True},
    {"more": {"cpu": "2", "example.com/card": "2"}},
    {"more": {"memory": "1Gi"}, "images": ["app:1", "app:2"]},
]
PREFERRED = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 7, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}}
        ]
    }
}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "apart"}}}
        ]
    }
}
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "spread"}},
    }
]
PODS: list[dict[str, Any]] = [
    {},
    {"cpu": "1500m"},
    {"memory": "3Gi", "image": "app:2"},
    {"spec": {"nodeSelector": {ZONE: "b"}}},
    {"spec": {"tolerations": [{"operator": "Exists"}]}},
    {"spec": {"affinity": PREFERRED}},
    {"spec": {"affinity": APART}, "app": "apart"},
    {"spec": {"topologySpreadConstraints": SPREAD}, "app": "spread"},
    {"port": 8080},
    {"more": {"example.com/card": "1"}},
    {"app": "served"},
    {"cpu": "0", "memory": "0"},
    {"cpu": "100"},
]


def pod(number: int, kind: int, priority: int = 0) -> Pod:
    wanted = PODS[kind]
    container: dict[str, Any] = {
        "name": "c",
        "image": wanted.get("image", "app:1"),
        "resources": {
            "requests": {"cpu": "500m", "memory": "256Mi"}
            | {name: wanted[name] for name in ("cpu", "memory") if name in wanted}
            | wanted.get("more", {})
        },
    }
    if "port" in wanted:
        container["ports"] = [{"containerPort": 80, "hostPort": wanted["port"], "protocol": "TCP"}]
    item = {
        "metadata": {
            "name": f"p{number}",
            "namespace": "d",
            "uid": f"uid-p{number}",
            "labels": {"app": wanted.get("app", "x")},
        },
        "spec": {"containers": [container], "priority": priority, **wanted.get("spec", {})},
    }
    found: Pod = convert(POD, item)
    return found


class World:
    """One state, and two profiles on it: one that keeps answers, one that does not."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.kept, self.fresh = new_profile(self.state), uncached(new_profile(self.state))
        self.nodes: dict[str, Node] = {}
        self.placed: list[Pod] = []
        self.waiting: list[Pod] = []
        self.numbers = itertools.count()
        self.classes: list[Any] = []

    def put_node(self, name: str, kind: int) -> None:
        new = node(name, **NODES[kind])
        self.state.apply(Change(NODE, self.nodes.get(name), new))
        self.nodes[name] = new

    def remove_node(self, name: str) -> None:
        if name in self.nodes:
            self.state.apply(Change(NODE, self.nodes.pop(name), None))

    def remove_pod(self, place: int) -> None:
        if self.placed:
            gone = self.placed.pop(place % len(self.placed))
            self.state.forget(gone)
            self.state.apply(Change(POD, gone, None))

    def nominate(self, kind: int, name: str) -> None:
        waiting = pod(next(self.numbers), kind, priority=5)
        self.state.apply(Change(POD, None, waiting))
        self.state.nominate(waiting, name)
        self.waiting.append(waiting)

    def serve(self, present: bool) -> None:
        """A Service whose Pods are spread softly, or none."""
        item = {"metadata": {"name": "s", "namespace": "d"}, "spec": {"selector": {"app": "served"}}}
        service = convert(SERVICE, item)
        self.state.apply(Change(SERVICE, None, service) if present else Change(SERVICE, service, None))

    def toggle_class(self) -> None:
        item = {"metadata": {"name": "card"}, "spec": {"extendedResourceName": "example.com/card"}}
        if self.classes:
            self.state.apply(Change(DEVICE_CLASS, self.classes.pop(), None))
        else:
            self.classes.append(convert(DEVICE_CLASS, item))
            self.state.apply(Change(DEVICE_CLASS, None, self.classes[0]))

    def decide(self, kind: int) -> None:
        new = pod(next(self.numbers), kind)
        kept, fresh = (
            decide(Attempt(profile, new, self.state, now=0.0, rotation=Rotation()))
            for profile in (self.kept, self.fresh)
        )
        assert told(kept) == told(fresh)
        self.kept.classes.verify(self.state)
        self.kept.templates.verify(self.kept, self.state)
        if isinstance(kept, Placed):
            self.state.apply(Change(POD, None, new))
            self.state.assume(new, kept.node)
            self.placed.append(new)


def told(decision: Any) -> object:
    """Everything a decision says, in plain values."""
    if isinstance(decision, Placed):
        scores = decision.scores
        columns = None
        if scores is not None:
            tables = (scores.raw, scores.normalized)
            columns = (
                [[(name, values.tolist()) for name, values in table.items()] for table in tables],
                scores.totals.tolist(),
            )
        return decision.node, decision.evaluated_nodes, decision.feasible_nodes, columns
    assert isinstance(decision, Rejected), decision
    found = decision.diagnosis
    return found.groups, found.absent, found.prefilter_message, found.postfilter_message, decision.nominated_node


NAMES = st.sampled_from(["n0", "n1", "n2", "n3", "n4"])
STEPS = st.one_of(
    st.tuples(st.just("decide"), st.integers(0, len(PODS) - 1)),
    st.tuples(st.just("decide"), st.integers(0, 2)),
    st.tuples(st.just("put_node"), NAMES, st.integers(0, len(NODES) - 1)),
    st.tuples(st.just("remove_node"), NAMES),
    st.tuples(st.just("remove_pod"), st.integers(0, 20)),
    st.tuples(st.just("nominate"), st.integers(0, 2), NAMES),
    st.tuples(st.just("serve"), st.booleans()),
    st.tuples(st.just("toggle_class")),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=5, max_size=40), st.sampled_from([0, 2, vectors.FEW_ROWS]))
def test_kept_answers_decide_as_fresh_ones(steps: list[tuple[Any, ...]], few_rows: int) -> None:
    """Node, totals, scores per plugin and rejections are those of a runner that keeps nothing, whatever happens."""
    world = World()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "FEW_ROWS", few_rows)
        for name in ("n0", "n1", "n2"):
            world.put_node(name, 0)
        for step, *arguments in steps:
            getattr(world, step)(*arguments)


def count_of(world: World, work: Callable[[], None]) -> int:
    before = world.kept.classes.evaluations
    work()
    return world.kept.classes.evaluations - before


@pytest.mark.parametrize("nodes", [40, 400])
def test_a_pod_of_a_known_class_asks_about_changed_rows_only(nodes: int) -> None:
    """After one Pod was placed one row has changed: three plugins depend on Pods, whatever the number of nodes."""
    world = World()
    for number in range(nodes):
        world.put_node(f"m{number}", 0)
    world.decide(0)
    assert count_of(world, lambda: world.decide(0)) == 3
    world.put_node("m3", 1)
    assert count_of(world, lambda: world.decide(0)) < 30
    assert count_of(world, lambda: world.decide(1)) > nodes


def test_a_wrong_kept_answer_is_an_internal_error() -> None:
    """--verify-caches asks about every row again and names plugin and node."""
    world = World()
    world.put_node("n0", 0)
    world.put_node("n1", 0)
    profile, state = world.kept, world.state
    decide(Attempt(profile, pod(0, 0), state, now=0.0, rotation=Rotation()))
    state.nodes._requested.set("cpu", 1, 3800)  # behind the versions' back
    with pytest.raises(InternalError, match="kept for node n1 is stale"):
        profile.classes.verify(state)


def test_classes_are_bounded() -> None:
    """The least recently used class is dropped."""
    world = World()
    world.put_node("n0", 0)
    world.state.nodes._grow(100_000)
    for cpu in range(12):
        PODS.append({"cpu": f"{cpu + 1}m"})
        decide(Attempt(world.kept, pod(cpu, len(PODS) - 1), world.state, now=0.0, rotation=Rotation()))
        PODS.pop()
    assert len(world.kept.classes) == 8


def test_row_forms_equal_column_forms() -> None:
    """The forms for one row give the numbers of the column form, for random nodes and requests."""
    random = np.random.default_rng(7)
    world = World()
    for number in range(60):
        cpu, memory = int(random.integers(0, 9)), int(random.integers(0, 9))
        world.put_node(f"r{number}", 0)
        item = node(f"r{number}", more={"cpu": f"{cpu * 333}m", "memory": f"{memory * 333}Mi"})
        world.state.apply(Change(NODE, world.nodes[f"r{number}"], item))
        world.nodes[f"r{number}"] = item
    for number in range(200):
        world.state.assume(pod(1000 + number, int(random.integers(0, 3))), f"r{random.integers(0, 60)}")
    asked = compared = 0
    for kind in (0, 1, 2, 11, 12):
        decision = decide(Attempt(world.kept, pod(kind, kind), world.state, now=0.0, rotation=Rotation()))
        cycle = decision.cycle if isinstance(decision, Placed) else None
        if cycle is None:
            continue
        rows = world.state.nodes.order()
        for name, row_form, form in (
            ("NodeResourcesFit", "filter_row", "filter"),
            ("NodeResourcesFit", "score_row", "score"),
            ("NodeResourcesBalancedAllocation", "score_row", "score"),
        ):
            plugin = world.kept.plugins[name]
            answers = getattr(plugin, form)(cycle, world.state.nodes, rows).tolist()
            for row, answer in zip(rows.tolist(), answers, strict=True):
                one = getattr(plugin, row_form)(cycle, world.state.nodes, row)
                asked += 1
                if one is not None:
                    compared += 1
                    assert one == answer, (name, world.state.nodes.name_of(row))
    assert compared > asked // 3
