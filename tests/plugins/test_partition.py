"""Partition: a profile keeps to its nodes, and its claims to its drivers and pools."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.core import Node
from scheduler.api.kinds import NODE, convert
from scheduler.app.profiles import build_profiles
from scheduler.config import load_config
from scheduler.dra.features import Features
from scheduler.dra.limits import DeviceLimit
from scheduler.state.cluster import ClusterState
from tests.app.objects import claim, gpu_class, gpu_slice, node, pod
from tests.app.world import World, world

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: Partition}]}}
  pluginConfig:
  - name: Partition
    args: %s
"""


async def told(there: World, name: str) -> str:
    """The condition's message once there is one, "" when the Pod is bound."""
    found: list[str] = []

    async def settled() -> bool:
        item = await there.pod(name)
        conditions = item.get("status", {}).get("conditions", [])
        found[:] = [one.get("message", "") for one in conditions if one["type"] == "PodScheduled"]
        return bool(item["spec"].get("nodeName")) or bool(found and found[0])

    await there.until(settled, f"pod {name} is bound or told")
    return found[0] if found and found[0] else ""


async def test_only_nodes_inside_take_pods_and_a_label_wakes_them() -> None:
    """The reason is told on nodes outside; a node that gets the label takes the Pod."""
    config = CONFIG % "{nodeSelector: {team: ours}}"
    async with world([node("a"), node("b")], config) as there:
        await there.call("POST", "/api/v1/namespaces/default/pods", pod("p"))
        assert "2 node(s) didn't belong to the scheduler's partition" in await told(there, "p")
        patch = {"metadata": {"labels": {"team": "ours"}}}
        await there.call("PATCH", "/api/v1/nodes/b", patch, "application/merge-patch+json")

        async def bound() -> bool:
            return await there.bound() == {"p": "b"}

        await there.until(bound, "the Pod is on b")


@pytest.mark.parametrize(
    ("args", "fits"),
    [
        ("{drivers: [gpu.example.com]}", True),
        ("{drivers: [other.example.com]}", False),
        ("{pools: [a]}", True),
        ("{pools: [b]}", False),
        ("{drivers: [gpu.example.com], pools: [b]}", False),
        ("{nodes: [a]}", True),
        ("{nodes: [b]}", False),
        ("{}", True),
    ],
)
async def test_claims_get_devices_of_the_partition_only(args: str, fits: bool) -> None:
    """A device of another driver or pool is as if it were not there."""
    objects = [node("a"), gpu_class(), gpu_slice("a", 1), claim("c")]
    async with world(objects, CONFIG % args) as there:
        await there.call("POST", "/api/v1/namespaces/default/pods", pod("p", claim="c"))
        assert (await told(there, "p") == "") is fits


def test_profiles_beside_a_limited_one_are_not_limited() -> None:
    """The limit belongs to the profile that enables Partition."""
    config = load_config(
        (CONFIG % "{drivers: [x]}").replace("- plugins", "- schedulerName: all\n- schedulerName: some\n  plugins")
    )
    profiles = build_profiles(config, ClusterState(Features()), lambda: "id", Features())
    limits = {name: profile.plugins["DynamicResources"]._features.device_limit for name, profile in profiles.items()}
    assert limits == {"all": None, "some": DeviceLimit(frozenset({"x"}))}


def test_a_node_that_leaves_the_partition_wakes_nobody() -> None:
    """Only a node that comes inside is worth another try."""
    config = load_config(CONFIG % "{nodeSelector: {team: ours}, nodes: [a]}")
    state = ClusterState(Features())
    plugin: Any = build_profiles(config, state, lambda: "id", Features())["dra-scheduler"].plugins["Partition"]
    (registration,) = plugin.events()

    def made(name: str, team: str) -> Node:
        found: Node = convert(NODE, node(name) | {"metadata": {"name": name, "labels": {"team": team}}})
        return found

    outside, inside = made("a", "theirs"), made("a", "ours")
    assert registration.hint(None, outside, inside)
    assert not registration.hint(None, inside, outside)
    assert not registration.hint(None, None, made("b", "ours"))
