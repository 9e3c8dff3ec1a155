"""Plugins, hints and events are measured, and what is measured is shown under upstream's names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from scheduler.api.changes import Change
from scheduler.api.kinds import NODE, POD, convert
from scheduler.app.measuring import Measuring, change_label
from scheduler.app.meters import refresh_gauges
from scheduler.edge.metrics import Metrics
from scheduler.framework.profile import Profile
from tests.app.objects import node, pod
from tests.app.world import world


class Ticks:
    """A clock that moves a second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def values(metrics: Metrics, name: str) -> dict[str, float]:
    """Label text → number of every sample called ``name``."""
    text = metrics.render()[0].decode()
    return {labels: float(value) for labels, value in re.findall(rf"^{name}{{(.*)}} (\S+)$", text, re.MULTILINE)}


async def test_a_pods_way_is_measured_at_every_point() -> None:
    """Two nodes and a Pod: what kube-scheduler counts for the same."""
    metrics = Metrics()
    async with world([node("a"), node("b")], measuring=Measuring(metrics, Ticks())) as there:
        await there.call("POST", "/api/v1/namespaces/default/pods", pod("p"))

        async def bound() -> bool:
            return there.counts.seen["scheduled"] > 0

        await there.until(bound, "the Pod is bound")
        counts = values(metrics, "scheduler_framework_extension_point_duration_seconds_count")
        points = {re.search(r'extension_point="(\w+)"', labels)[1] for labels in counts}  # type: ignore[index]  # every sample has the label
        assert points == {
            "PreEnqueue",
            "PreFilter",
            "Filter",
            "PreScore",
            "Score",
            "Reserve",
            "Permit",
            "PreBind",
            "Bind",
            "PostBind",
        }
        assert all('status="Success"' in labels for labels in counts)
        evaluated = values(metrics, "scheduler_plugin_evaluation_total")
        wanted = {
            'extension_point="PreFilter",plugin="NodeName"': 1,
            'extension_point="Filter",plugin="NodeResourcesFit"': 2,
            'extension_point="Filter",plugin="TaintToleration"': 2,
            'extension_point="PreScore",plugin="TaintToleration"': 1,
            'extension_point="Score",plugin="ImageLocality"': 2,
        }
        found = {
            ",".join(sorted(labels.split(",")[:3])).split(",profile")[0]: count for labels, count in evaluated.items()
        }
        assert {key: found.get(key) for key in wanted} == wanted
        timed = values(metrics, "scheduler_plugin_execution_duration_seconds_count")
        assert any('plugin="DefaultBinder"' in labels for labels in timed)
        events = values(metrics, "scheduler_event_handling_duration_seconds_count")
        assert events['event="NodeAdd"'] == 2
        assert events['event="UnscheduledPodAdd"'] == 1


async def test_waiting_pods_are_shown_by_plugin_and_hints_are_timed() -> None:
    """A Pod that fits nowhere counts under the plugin that refused it; a node's change asks that plugin's hint."""
    metrics = Metrics()
    async with world([node("a", cpu="1")], measuring=Measuring(metrics)) as there:
        await there.call("POST", "/api/v1/namespaces/default/pods", pod("p", cpu="5"))

        async def told() -> bool:
            return there.counts.seen["unschedulable"] > 0

        await there.until(told, "the Pod is told")
        refresh_gauges(metrics, there.service.queue, there.service.state, 0.0, {"binding": 0})
        waiting = values(metrics, "scheduler_unschedulable_pods")
        assert waiting == {'plugin="NodeResourcesFit",profile="dra-scheduler"': 1.0}
        assert values(metrics, "scheduler_inflight_events") == {'event="PodPopped"': 0.0}
        assert values(metrics, "scheduler_goroutines") == {'operation="binding"': 0.0}
        await there.call("POST", "/api/v1/nodes", node("b", cpu="2"))

        async def asked() -> bool:
            return bool(values(metrics, "scheduler_queueing_hint_execution_duration_seconds_count"))

        await there.until(asked, "the hint was asked")
        hints = values(metrics, "scheduler_queueing_hint_execution_duration_seconds_count")
        assert 'event="NodeAdd",hint="QueueSkip",plugin="NodeResourcesFit"' in {
            ",".join(sorted(labels.split(","))) for labels in hints
        }


def test_one_cycle_of_ten_is_measured_plugin_by_plugin() -> None:
    """The first, the eleventh and so on."""
    timings = Measuring(Metrics()).timings(Profile("p", {}))
    assert [number for number in range(30) if timings.sample() is not None] == [0, 10, 20]


@pytest.mark.parametrize(
    ("kind", "old", "new", "label"),
    [
        (NODE, None, node("a"), "NodeAdd"),
        (NODE, node("a"), None, "NodeDelete"),
        (POD, None, pod("p"), "UnscheduledPodAdd"),
        (POD, pod("p"), pod("p", nodeName="a"), "AssignedPodUpdate"),
        (POD, pod("p", nodeName="a"), None, "AssignedPodDelete"),
    ],
)
def test_changes_have_upstreams_labels(kind: Any, old: Any, new: Any, label: str) -> None:
    """Pods go by whether they have a node."""
    made = [None if item is None else convert(kind, item) for item in (old, new)]
    assert change_label(Change(kind, *made)) == label


async def test_pods_bound_after_a_flush_are_counted() -> None:
    """The flush's mark on a Pod reaches the meter when it is bound, and only then."""
    async with world([node("a")]) as there:
        for name, flushed in (("plain", False), ("flushed", True)):
            await there.call("POST", "/api/v1/namespaces/default/pods", pod(name, cpu="20"))

            async def waits(name: str = name) -> bool:
                return bool((await there.pod(name)).get("status", {}).get("conditions"))

            await there.until(waits, f"{name} waits")
            uid = (await there.pod(name))["metadata"]["uid"]
            queued = there.service.queue.get(uid)
            assert queued is not None
            queued.was_flushed = flushed
        await there.call("POST", "/api/v1/nodes", node("b", cpu="64"))

        async def both() -> bool:
            return len(await there.bound()) == 2

        await there.until(both, "both are bound")
        assert there.counts.seen["after flush"] == 1
