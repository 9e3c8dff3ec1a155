"""The slice inventory: cached views equal fresh ones after any sequence of changes; what is ignored is said."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.api.kinds import DEVICE_TAINT_RULE, NODE, RESOURCE_SLICE, convert
from scheduler.dra.features import Features
from scheduler.dra.slices import SliceStore

from .generate import Generator

DRIVER = "gpu.example.com"


def node(name: str = "node-1", **labels: str) -> Any:
    """A node."""
    return convert(NODE, {"metadata": {"name": name, "labels": labels}})


def slice_(
    name: str, devices: list[dict[str, Any]] | None = None, pool: dict[str, Any] | None = None, **spec: Any
) -> Any:
    """A slice on node-1 unless ``spec`` places it."""
    if not {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"} & set(spec):
        spec["nodeName"] = "node-1"
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1} | (pool or {})
    full = {"driver": DRIVER, "pool": pool, "devices": devices or []} | spec
    return convert(RESOURCE_SLICE, {"metadata": {"name": name}, "spec": full})


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_cached_views_equal_fresh_ones(seed: int) -> None:
    """Slices of all kinds come, change, move and go, and rules with them: no cached view is ever stale."""
    generator = Generator(seed)
    randomness = random.Random(seed)
    store = SliceStore(Features())
    nodes = [node("node-1", zone="z1"), node("node-2", zone="z2"), node("node-3")]
    known: dict[str, Any] = {}
    rules: dict[str, Any] = {}
    for _ in range(6):
        for item in generator.case()["slices"]:
            item["metadata"]["name"] = f"s{randomness.randrange(8)}"
            new = convert(RESOURCE_SLICE, item)
            store.apply(known.get(new.name), new)
            known[new.name] = new
        if known and randomness.random() < 0.7:
            name = randomness.choice(sorted(known))
            store.apply(known.pop(name), None)
        if randomness.random() < 0.6:
            generator.taints = True
            rule = convert(DEVICE_TAINT_RULE, generator.rule(randomness.randrange(3)))
            store.apply_rule(rules.get(rule.metadata.name), rule)
            rules[rule.metadata.name] = rule
        for one in nodes:
            if randomness.random() < 0.7:
                store.view(one)
        store.verify()
    for name in sorted(known):
        store.apply(known.pop(name), None)
    assert all(not store.view(one).pools for one in nodes)


@pytest.mark.parametrize(
    ("spec", "features", "cause"),
    [
        ({"perDeviceNodeSelection": True}, Features(partitionable_devices=False), "DRAPartitionableDevices"),
        (
            {"devices": [], "sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}]},
            Features(partitionable_devices=False),
            "DRAPartitionableDevices",
        ),
        (
            {"devices": [{"name": "d", "consumesCounters": [{"counterSet": "s", "compatibilityGroups": ["g"]}]}]},
            Features(),
            "DRADeviceCompatibilityGroups",
        ),
        ({"devices": [{"name": "d", "capacity": {"mem": {"value": "1 GiB"}}}]}, Features(), "device d: "),
    ],
)
def test_b41_ignored_slices_are_named_with_their_cause(spec: dict[str, Any], features: Features, cause: str) -> None:
    """B41: a slice that cannot be looked at is never dropped silently."""
    store = SliceStore(features)
    store.apply(None, slice_("bad", **spec))
    (ignored,) = store.view(node()).ignored
    assert ignored.slice == "bad"
    assert cause in ignored.cause


def test_b33_completeness_is_judged_over_all_nodes() -> None:
    """B33: a pool of three slices on three nodes is complete from each node's view, and incomplete without one."""
    store = SliceStore(Features())
    slices = [slice_(f"s{i}", [{"name": f"d{i}"}], {"resourceSliceCount": 3}, nodeName=f"node-{i}") for i in range(3)]
    for item in slices:
        store.apply(None, item)
    assert all(store.view(node(f"node-{i}")).pools[0].complete for i in range(3))
    store.apply(slices[2], None)
    assert [store.view(node(f"node-{i}")).pools[0].complete for i in range(2)] == [False, False]
    assert not store.view(node("node-2")).pools


def test_b35_slices_that_disagree_about_their_number() -> None:
    """B35: the first slice of the generation decides, in the order they came."""
    for counts, complete in (((2, 1), True), ((1, 2), False)):
        store = SliceStore(Features())
        for number, count in enumerate(counts):
            store.apply(None, slice_(f"s{number}", [{"name": f"d{number}"}], {"resourceSliceCount": count}))
        assert store.view(node()).pools[0].complete is complete


def test_b46_a_rule_taints_and_untaints_without_any_slice_change() -> None:
    """B46: rules are laid over copies; {} selects every device, no selector none; only real changes are reported."""
    store = SliceStore(Features())
    store.apply(None, slice_("s", [{"name": "d", "taints": [{"key": "own", "effect": "NoSchedule"}]}]))

    def rule(selector: dict[str, str] | None) -> Any:
        spec = {"taint": {"key": "k", "effect": "NoExecute"}} | (
            {} if selector is None else {"deviceSelector": selector}
        )
        return convert(DEVICE_TAINT_RULE, {"metadata": {"name": "r"}, "spec": spec})

    def keys() -> list[str]:
        return [taint.key for taint in store.view(node()).devices[0].taints]

    assert keys() == ["own"]
    assert store.apply_rule(None, rule({})) == ("s",)
    assert keys() == ["own", "k"]
    assert store.apply_rule(rule({}), rule({"driver": DRIVER})) == ()
    assert store.apply_rule(rule({"driver": DRIVER}), rule(None)) == ("s",)
    assert keys() == ["own"]
    assert SliceStore(Features(device_taint_rules=False)).apply_rule(None, rule({})) == ()


def test_views_are_kept_until_something_they_depend_on_changes() -> None:
    """The same view object serves until a slice of the node, of its pools, or of all nodes changes."""
    store = SliceStore(Features())
    store.apply(None, slice_("a", [{"name": "d"}], nodeName="node-1"))
    one, two = store.view(node("node-1")), store.view(node("node-2"))
    store.apply(None, slice_("b", [{"name": "d"}], {"name": "q"}, nodeName="node-2"))
    assert store.view(node("node-1")) is one
    assert store.view(node("node-2")) is not two
    store.apply(None, slice_("c", [{"name": "n"}], {"name": "net"}, allNodes=True))
    assert store.view(node("node-1")) is not one
    labelled = store.view(node("node-1"))
    assert store.view(node("node-1", zone="x")) is not labelled
