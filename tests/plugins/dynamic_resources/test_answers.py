"""Verdicts kept for whole clusters: never other than those of a search from scratch."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.dynamic_resources import DynamicResources
from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, RESOURCE_CLAIM, RESOURCE_SLICE
from scheduler.errors import InternalError
from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import Handle
from scheduler.framework.status import Code
from scheduler.state.podinfo import pod_info

from .device_world import DRIVER, DeviceWorld, allocation_of, cel, exactly, first_of, sub

KINDS = ("big", "small")


def verdicts(world: DeviceWorld, plugin: DynamicResources, pod: Pod) -> tuple[dict[str, str], dict[str, int]]:
    """Node name → reason ("" for feasible), and the raw scores."""
    cycle, nodes = Cycle(pod, pod_info(pod), world.state), world.state.nodes
    assert plugin.pre_filter(cycle).status.code is Code.SUCCESS
    rows = nodes.order()
    steps = plugin.filter_steps(cycle, nodes, rows)
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        found = stop.value
    names = [nodes.name_of(row) for row in rows.tolist()]
    reasons = [plugin.verdicts.status(verdict).message for verdict in found.tolist()]
    return dict(zip(names, reasons, strict=True)), dict(
        zip(names, plugin.score(cycle, nodes, rows).tolist(), strict=True)
    )


def change(world: DeviceWorld, chance: random.Random) -> None:
    """Something happens to a node, a slice, a claim, or what is in flight."""
    node = f"node-{chance.randrange(4)}"
    what = chance.randrange(6)
    if what == 0:
        world.put(NODE, {"metadata": {"name": node, "labels": {"zone": chance.choice("ab")}}})
    elif what == 1 and ("Node", node) in world.known:
        world.remove(NODE, node)
    elif what == 2:
        devices = [{"name": f"gpu-{i}", "attributes": {"kind": {"string": chance.choice(KINDS)}}} for i in range(2)]
        world.slice(node, devices, generation=chance.randrange(1, 3), count=chance.choice((1, 1, 1, 2)))
    elif what == 3:
        pool = {"name": "net", "generation": 1, "resourceSliceCount": 1}
        selector = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [chance.choice("ab")]}]}
        spec = {"driver": DRIVER, "pool": pool, "devices": [{"name": "nic", "attributes": {"kind": {"string": "big"}}}]}
        spec["nodeSelector"] = {"nodeSelectorTerms": [selector]}
        world.put(RESOURCE_SLICE, {"metadata": {"name": "net"}, "spec": spec})
    elif what == 4:
        pool = chance.choice((node, "net"))
        device = f"gpu-{chance.randrange(2)}" if pool == node else "nic"
        stored = allocation_of(device, pool=pool) if chance.random() < 0.7 else None
        world.allocate(world.claim(f"held-{chance.randrange(3)}"), stored)
    else:
        uid = f"flying-{chance.randrange(2)}"
        ledger = world.state.devices.ledger
        if not ledger.drop_in_flight(uid):
            claim = world.claim(uid)
            world.allocate(claim, allocation_of("gpu-0", pool=node))
            allocation = world.state.devices.claims[f"default/{uid}"].status.allocation
            assert allocation is not None
            world.remove(RESOURCE_CLAIM, f"default/{uid}")
            ledger.set_in_flight(uid, f"default/{uid}", allocation)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_kept_answers_equal_fresh_ones(seed: int) -> None:
    """Nodes, slices, claims and flights change; after each change a new plugin and the one with memory agree."""
    chance = random.Random(seed)
    world = DeviceWorld()
    kind = 'device.attributes["gpu.example.com"].kind == "{}"'
    choice = first_of(
        "r", sub("b", selectors=[cel(kind.format("big"))]), sub("s", selectors=[cel(kind.format("small"))])
    )
    world.claim("one")
    world.claim("two", exactly(count=2))
    world.claim("choice", choice)
    pods = [world.pod(name, name) for name in ("one", "two", "choice")]
    for _ in range(12):
        change(world, chance)
        pod = chance.choice(pods)
        fresh = DynamicResources(Handle(world.state, world.new_id, None))
        assert verdicts(world, world.plugin, pod) == verdicts(world, fresh, pod)
        world.plugin.verify_caches()
        world.state.verify()


def test_pods_of_one_template_share_their_answers() -> None:
    """The second Pod's claim has another name and the same spec: no node is searched again."""
    world = DeviceWorld()
    for number in range(3):
        world.node(f"node-{number}")
    world.claim("a")
    world.claim("b")
    cycle_pod = world.pod("p", "a")
    first = verdicts(world, world.plugin, cycle_pod)
    (answers,) = world.plugin._searches._answers.all()
    asked = answers.verdicts.copy()
    answers.verdicts[:] = world.plugin.verdicts.intern(Code.UNSCHEDULABLE, ("kept",))
    second = verdicts(world, world.plugin, world.pod("q", "b"))
    assert set(first[0].values()) == {""}
    assert set(second[0].values()) == {"kept"}
    assert np.array_equal(asked[:3], np.zeros(3))


def test_verify_finds_a_stale_answer() -> None:
    """A wrong verdict in memory is an internal error under --verify-caches."""
    world = DeviceWorld()
    world.node("node-1")
    world.claim("a")
    verdicts(world, world.plugin, world.pod("p", "a"))
    world.plugin.verify_caches()
    (answers,) = world.plugin._searches._answers.all()
    answers.scores[:] = 3
    with pytest.raises(InternalError, match="node-1 is stale"):
        world.plugin.verify_caches()


def test_verify_finds_a_wrong_static_answer() -> None:
    """What is remembered about a device's suitability is asked again, too."""
    world = DeviceWorld()
    world.node("node-1")
    world.claim("a")
    verdicts(world, world.plugin, world.pod("p", "a"))
    view = world.state.devices.slices.view(world.state.nodes.node(0))
    (known,) = view.answers.values()
    known.yes = 0
    with pytest.raises(InternalError, match="devices of node node-1"):
        world.plugin.verify_caches()
    known.yes = 1
    world.plugin.verify_caches()
    info = view.devices[0]
    info.verdicts = dict.fromkeys(info.verdicts, False)
    with pytest.raises(InternalError, match="remembered False"):
        world.plugin.verify_caches()
