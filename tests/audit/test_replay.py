"""Recording a service under load and replaying every decision it made."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from scheduler.edge.errors import NotFound
from tests.app.objects import Object, gpu_class, gpu_slice, node, pod, template
from tests.app.race import PODS_PATH
from tests.app.test_preemption import classes
from tests.app.world import World
from tests.audit.recording import recorded_world, replay_all

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
"""
CLAIMS_PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
AT_ONCE = {"gracePeriodSeconds": 0}


def cluster(nodes: int) -> list[Object]:
    """Nodes in three zones, each with four devices, classes, templates and priorities."""
    made: list[Object] = [gpu_class(), template("one"), template("two", 2), *classes()]
    for number in range(nodes):
        one = node(f"n{number}", cpu="4")
        one["metadata"]["labels"]["topology.kubernetes.io/zone"] = f"z{number % 3}"
        made += [one, gpu_slice(f"n{number}", 4)]
    return made


async def churn(w: World, seed: int, steps: int) -> None:
    """Pods with and without devices, of three priorities, come and go; nodes leave, return and are cordoned."""
    rng = random.Random(seed)
    alive: list[str] = []
    for step in range(steps):
        what = rng.random()
        if what < 0.62 or not alive:
            name = f"p{step}"
            wanted = rng.choice(["", "one", "one", "two"])
            cpu = rng.choice(["100m", "500m", "1500m"])
            priority = rng.choice(["low", "low", "middle", "high"])
            body = pod(name, cpu=cpu, template=wanted, priorityClassName=priority, terminationGracePeriodSeconds=0)
            body["metadata"]["labels"] = {"app": rng.choice("ab")}
            if rng.random() < 0.3:
                body["spec"]["topologySpreadConstraints"] = [_spread(body["metadata"]["labels"])]
            await w.call("POST", PODS_PATH, body)
            alive.append(name)
        elif what < 0.9:
            await _delete(w, f"{PODS_PATH}/{alive.pop(rng.randrange(len(alive)))}")
        else:
            name = f"n{rng.randrange(6)}"
            cordoned = {"spec": {"unschedulable": rng.random() < 0.5}}
            await w.call("PATCH", f"/api/v1/nodes/{name}", cordoned, "application/merge-patch+json")
        if rng.random() < 0.5:
            await asyncio.sleep(rng.random() * 0.02)


def _spread(labels: dict[str, str]) -> Object:
    return {
        "maxSkew": 2,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }


async def _delete(w: World, path: str) -> None:
    with suppress(NotFound):  # a preemptor was quicker
        await w.call("DELETE", path, AT_ONCE)


async def test_every_decision_under_load_is_replayed_to_the_same_answer(tmp_path: Path) -> None:
    """Nodes, devices and scores come out the same for every placement and every rejection, preemptions included."""
    async with recorded_world(tmp_path, cluster(6), CONFIG) as w:
        await churn(w, 1, 120)
    found = replay_all(tmp_path)
    outcomes = [result.recorded["outcome"] for result in found.results]
    assert outcomes.count("placed") > 40
    assert outcomes.count("rejected") > 5
    assert sum(bool(result.recorded_devices) for result in found.results) > 20
    assert any("scores" in result.recorded for result in found.results)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
async def test_every_decision_under_random_load_is_replayed(tmp_path: Path, seed: int) -> None:
    """The same with other loads, and so small a recording that it begins anew again and again."""
    async with recorded_world(tmp_path, cluster(6), CONFIG, record_max_bytes=2_000_000) as w:
        await churn(w, seed, 150)
    found = replay_all(tmp_path)
    assert len(found.results) > 50
    assert len(found.windows) > 1
