"""What the vectors cannot show: arguments, limits of int64, nonsense, order, the small plugins, the helpers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.base import default_normalize, per_label, per_taint_set, percent
from plugins.fit_strategies import build_strategy, shape_table
from plugins.image_locality import normalized_image_name
from scheduler.api.changes import Change
from scheduler.api.kinds import DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE, convert
from scheduler.errors import ConfigError
from scheduler.framework.instructions import BindPod
from scheduler.framework.plugin import Handle
from scheduler.framework.status import Code, Status
from tests.plugins.plugin_world import World
from tests.plugins.test_hints import node, pod

INT64_MAX = 2**63 - 1


def test_priority_sort() -> None:
    """Higher priority first, then the earlier time."""
    plugin = World().plugin("PrioritySort")
    low, high, none = pod("low", priority=1), pod("high", priority=7), pod("none")
    keyed = [(plugin.sort_key(p, t), p.metadata.name) for p, t in ((low, 1.0), (high, 3.0), (high, 2.0), (none, 0.0))]
    assert [name for _, name in sorted(keyed)] == ["high", "high", "low", "none"]
    assert plugin.sort_key(high, 2.0) < plugin.sort_key(high, 3.0)


def test_scheduling_gates_text() -> None:
    """All gates are named, in order, in brackets."""
    status = World().plugin("SchedulingGates").pre_enqueue(pod(schedulingGates=[{"name": "a"}, {"name": "b"}]))
    assert status == Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("waiting for scheduling gates: [a b]",))


def test_node_name() -> None:
    """A Pod that names a node is offered this one only, and is refused on others."""
    world, wanted = World([node("a"), node("b")]), pod(nodeName="b")
    plugin = world.plugin("NodeName")
    assert plugin.pre_filter(world.cycle(wanted)).node_names == {"b"}
    assert plugin.pre_filter(world.cycle(pod())).node_names is None
    rejected = world.filter(plugin, wanted)
    assert {name: status.message for name, status in rejected.items()} == {
        "a": "node(s) didn't match the requested node name"
    }
    assert world.filter(plugin, pod()) == {}
    assert world.filter(plugin, pod(nodeName="gone")).keys() == {"a", "b"}


def test_default_binder() -> None:
    """Answers with the instruction to bind."""
    world, waiting = World(), pod()
    assert world.plugin("DefaultBinder").bind(world.cycle(waiting), "n") == BindPod(waiting, "n")


def test_fit_rejects_nonsense_quantities() -> None:
    """A Pod with a quantity that cannot be read is refused with Pod and field, on all nodes at once."""
    world = World([node()])
    status = world.plugin("NodeResourcesFit").pre_filter(world.cycle(pod(requests={"cpu": "much"}))).status
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.message.startswith('Pod d/p: spec.containers[c].resources.requests[cpu]: "much" is not a quantity')


def test_fit_names_everything_that_is_short() -> None:
    """All reasons are collected, in upstream's order, and Pods of any number share a verdict."""
    world = World([node("a", allocatable={"pods": "0"}), node("b", allocatable={"pods": "0"})])
    plugin = world.plugin("NodeResourcesFit")
    rejected = world.filter(plugin, pod(requests={"memory": "1", "cpu": "5", "x.y/z": "1"}))
    reasons = ("Too many pods", "Insufficient cpu", "Insufficient memory", "Insufficient x.y/z")
    assert rejected["a"] == rejected["b"]
    assert rejected["a"].reasons == reasons
    assert rejected["a"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert len(plugin.verdicts) == 2


def test_fit_code_tells_whether_preemption_helps() -> None:
    """Unschedulable when the node is only full (of Pods or resources), Unresolvable when it is too small."""
    world = World([node("full"), node("small", allocatable={"cpu": "1"})], [pod("o", {"cpu": "3"}, nodeName="full")])
    codes = {n: s.code for n, s in world.filter(world.plugin("NodeResourcesFit"), pod(requests={"cpu": "2"})).items()}
    assert codes == {"full": Code.UNSCHEDULABLE, "small": Code.UNSCHEDULABLE_AND_UNRESOLVABLE}


def test_fit_with_more_resources_than_bits() -> None:
    """Any number of short resources is reported, also more than an integer has bits."""
    names = [f"x.y/r{i:03}" for i in range(100)]
    world = World([node("a"), node("b", allocatable=dict.fromkeys(names[:50], "1"))])
    rejected = world.filter(world.plugin("NodeResourcesFit"), pod(requests=dict.fromkeys(names, "1")))
    assert rejected["a"].reasons == tuple(f"Insufficient {name}" for name in names)
    assert rejected["b"].reasons == tuple(f"Insufficient {name}" for name in names[50:])


def test_delegated_resource_is_left_to_devices() -> None:
    """Where a node has none of a resource that a DeviceClass stands for, Fit does not refuse; where it has, it does."""
    nodes = [node("none"), node("zero", allocatable={"x.y/z": "0"}), node("some", allocatable={"x.y/z": "1"})]
    world = World(nodes, classes={"x.y/z": "c"})
    rejected = world.filter(world.plugin("NodeResourcesFit"), pod(requests={"x.y/z": "2"}))
    assert rejected.keys() == {"some"}
    assert World(nodes).filter(World(nodes).plugin("NodeResourcesFit"), pod(requests={"x.y/z": "2"})).keys() == {
        "none",
        "zero",
        "some",
    }


@pytest.mark.parametrize("kind", ["LeastAllocated", "MostAllocated"])
def test_scores_at_the_limit_of_int64(kind: str) -> None:
    """Amounts near 2**63 neither wrap around nor leave 0..100."""
    huge = {"memory": str(INT64_MAX), "cpu": "1"}
    pods = [pod(f"o{i}", {"memory": str(2**62)}, nodeName="n") for i in range(3)]
    world = World([node("n", allocatable=huge), node("m", allocatable=huge)], pods)
    result = world.score(world.plugin("NodeResourcesFit", {"scoringStrategy": {"type": kind}}), pod())
    assert not isinstance(result, Status)
    assert all(0 <= score <= 100 for score in result[1].values())
    balanced = world.score(world.plugin("NodeResourcesBalancedAllocation"), pod(requests={"memory": "1"}))
    assert not isinstance(balanced, Status)
    assert all(50 <= score <= 100 for score in balanced[1].values())


def test_shape_truncates_toward_zero() -> None:
    """A falling line through (0, 10) and (7, 0): the step down is cut, not floored."""
    table = shape_table([{"utilization": 0, "score": 10}, {"utilization": 7, "score": 0}], "shape")
    assert table[:9].tolist() == [100, 86, 72, 58, 43, 29, 15, 0, 0]
    assert len(table) == 101


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"type": "Best"}, "s.type"),
        ({"resources": [{"weight": 1}]}, "s.resources[0]"),
        ({"resources": [{"name": "cpu", "weight": 101}]}, "s.resources[0].weight"),
        ({"resources": "cpu"}, "s.resources[0]"),
        ({"type": "RequestedToCapacityRatio"}, "s.requestedToCapacityRatio.shape"),
    ],
)
def test_bad_strategy_arguments(arguments: dict[str, Any], path: str) -> None:
    """Arguments that cannot be used end the start with the field's path."""
    with pytest.raises(ConfigError) as caught:
        build_strategy(arguments, "s")
    assert caught.value.path == path


def test_no_resources_is_an_error() -> None:
    """A strategy without resources cannot score: upstream's text."""
    world = World([node()])
    plugin = type(world.plugin("NodeResourcesFit"))(Handle(world, None, None, {"scoringStrategy": {"resources": []}}))
    assert world.score(plugin, pod()) == Status(Code.ERROR, ("resources not found",))


def test_bad_preference_is_an_error() -> None:
    """A preferred term that cannot be parsed ends the attempt; a required one only matches nothing."""
    bad = {"matchExpressions": [{"key": "k", "operator": "In", "values": []}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": bad}]}
    world = World([node()])
    plugin = world.plugin("NodeAffinity")
    status = world.score(plugin, pod(affinity={"nodeAffinity": preferred}))
    assert isinstance(status, Status)
    assert status.code is Code.ERROR
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [bad]}}
    assert world.filter(plugin, pod(affinity={"nodeAffinity": required})).keys() == {"n"}


def test_bad_added_affinity() -> None:
    """An addedAffinity that cannot be parsed keeps the scheduler from starting."""
    bad = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": []}]}]}
    args = {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": bad}}
    with pytest.raises(ConfigError, match="addedAffinity"):
        World().plugin("NodeAffinity", args)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a", "a:latest"),
        ("a:1", "a:1"),
        ("host:5000/a", "host:5000/a:latest"),
        ("host:5000/a:1", "host:5000/a:1"),
        ("a@sha256:00", "a@sha256:00"),
        ("", ":latest"),
    ],
)
def test_image_names(name: str, expected: str) -> None:
    """A tag is what follows the last colon after the last slash."""
    assert normalized_image_name(name) == expected


@given(st.lists(st.tuples(st.integers(0, INT64_MAX), st.integers(0, INT64_MAX)), max_size=8))
def test_percent_is_exact(pairs: list[tuple[int, int]]) -> None:
    """For every part of a whole the percentage is that of whole numbers of any size."""
    pairs = [(min(pair), max(pair)) for pair in pairs]
    parts, wholes = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    assert percent(parts, wholes).tolist() == [part * 100 // whole if whole else 0 for part, whole in pairs]


@given(st.lists(st.integers(-(2**62), 2**62), max_size=8), st.booleans())
def test_default_normalize(scores: list[int], reverse: bool) -> None:
    """Upstream's rule for any scores: scaled to the largest, truncated toward zero, turned around when reversed."""
    largest = max([0, *scores])
    expected = []
    for score in scores:
        if largest == 0:
            expected.append(100 if reverse else score)
            continue
        scaled = abs(score) * 100 // largest * (1 if score >= 0 else -1)
        wrapped = (scaled + 2**63) % 2**64 - 2**63
        if wrapped != scaled:
            return  # beyond int64 there is no score
        expected.append(100 - scaled if reverse else scaled)
    assert default_normalize(np.array(scores, np.int64), reverse=reverse).tolist() == expected


def test_per_label_and_per_taint_set() -> None:
    """The helpers call their function once per distinct value and answer for every row."""
    calls: list[Any] = []
    nodes = [node("a", labels={"x": "1"}), node("b"), node("c", labels={"x": "1"}), node("d", labels={"x": "2"})]
    table = World(nodes).nodes

    def score(value: str | None) -> int:
        calls.append(value)
        return int(value or -5)

    assert per_label(table, table.order(), "x", score).tolist() == [1, -5, 1, 2]
    assert sorted(calls, key=str) == ["1", "2", None]
    assert per_label(table, table.order()[:0], "x", score).tolist() == []
    assert per_taint_set(table, table.order(), len).tolist() == [0, 0, 0, 0]


def served(selector: str) -> World:
    """Nodes a (4 devices, sizes 0 to 3, the last one held) and b (none); a DeviceClass serves served.io/dev."""
    world = World([node("a"), node("b")])
    spec = {"extendedResourceName": "served.io/dev", "selectors": [{"cel": {"expression": selector}}]}
    world.devices.apply_class(None, convert(DEVICE_CLASS, {"metadata": {"name": "c"}, "spec": spec}))
    devices = [{"name": f"d{size}", "attributes": {"size": {"int": size}}} for size in range(4)]
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    slice_spec = {"driver": "d.io", "nodeName": "a", "pool": pool, "devices": devices}
    world.devices.apply_slice(None, convert(RESOURCE_SLICE, {"metadata": {"name": "s"}, "spec": slice_spec}))
    held = [{"request": "r", "driver": "d.io", "pool": "a", "device": "d3"}]
    claim = {
        "metadata": {"name": "c", "namespace": "d", "uid": "c", "resourceVersion": "1"},
        "status": {"allocation": {"devices": {"results": held}}},
    }
    world.devices.apply_claim(Change(RESOURCE_CLAIM, None, convert(RESOURCE_CLAIM, claim)))
    return world


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("device.attributes['d.io'].size > 0", 33),  # 3 match, 1 held, 1 wanted: a third stays free
        ("device.attributes['d.io'].size < 3", 66),  # 3 match, none held
        ("device.attributes['d.io'].other > 0", 0),  # an error on any device: the node has none
    ],
)
def test_devices_that_serve_a_resource_are_scored(selector: str, expected: int) -> None:
    """Where a node offers none of a served resource, matching devices are the capacity and held ones the use."""
    world = served(selector)
    args = {"scoringStrategy": {"resources": [{"name": "served.io/dev", "weight": 1}]}}
    result = world.score(world.plugin("NodeResourcesFit", args), pod(requests={"served.io/dev": "1"}))
    assert not isinstance(result, Status)
    assert result[0] == {"a": expected, "b": 0}


def test_balanced_allocation_scores_served_resources_with_selectors() -> None:
    """A class with selectors is counted here too; kube-scheduler 1.37.2 crashes on it (its CEL cache is missing)."""
    world = served("device.attributes['d.io'].size > 0")
    args = {"resources": [{"name": "cpu", "weight": 1}, {"name": "served.io/dev", "weight": 1}]}
    plugin = world.plugin("NodeResourcesBalancedAllocation", args)
    result = world.score(plugin, pod(requests={"cpu": "1", "served.io/dev": "1"}))
    assert not isinstance(result, Status)
    # a: used (0, 1/3) and with the Pod (1/4, 2/3), a little less even; b has cpu only.
    assert result[0] == {"a": 50 + (50 + 79 - 83) // 2, "b": 75}
