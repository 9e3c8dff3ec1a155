"""The overlay of node columns: what a table would be if Pods came or went, while the table stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD, convert
from scheduler.state.nodes import NodeTable
from scheduler.state.overlay import NodeOverlay
from scheduler.state.podinfo import PodInfo, pod_info

NODES = 4
AMOUNTS = ("100m", "1", "0", "9223372036854775807", "4611686018427387904")


def make_pod(uid: str, cpu: str, gpu: str, port: int) -> Pod:
    requests = {"cpu": cpu, "memory": "1Gi", "example.com/gpu": gpu}
    container: dict[str, Any] = {"name": "c", "image": "i", "resources": {"requests": requests}}
    if port:
        container["ports"] = [{"containerPort": 1, "hostPort": port}]
    item = {"metadata": {"name": uid, "namespace": "d", "uid": uid}, "spec": {"containers": [container]}}
    pod: Pod = convert(POD, item)
    return pod


PODS = st.builds(
    make_pod, st.just("x"), st.sampled_from(AMOUNTS), st.sampled_from(("0", "2")), st.sampled_from((0, 80))
)


def numbers(nodes: NodeTable) -> dict[str, list[int]]:
    """Every Pod-dependent number by row."""
    rows = nodes.order()
    columns = {name: nodes.requested(name)[rows] for name in ("cpu", "memory", "example.com/gpu", "pods")}
    columns |= {f"nonzero {name}": nodes.nonzero_requested(name)[rows] for name in ("cpu", "memory")}
    found = {name: [int(value) for value in column] for name, column in columns.items()}
    found["ports"] = sorted(nodes.ports.conflicting_rows([("0.0.0.0", "TCP", 80)]))
    return found | {f"pods {row}": sorted(hash(info.uid) for info in nodes.pods(row)) for row in rows.tolist()}


def table(placed: dict[str, tuple[PodInfo, int]]) -> NodeTable:
    nodes = NodeTable()
    for index in range(NODES):
        nodes.add(convert(NODE, {"metadata": {"name": f"n{index}", "uid": f"n{index}"}}))
    for info, row in placed.values():
        nodes.add_pod(info, f"n{row}")
    return nodes


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(PODS, st.integers(0, NODES - 1)), max_size=8), st.data())
def test_an_overlay_is_the_table_of_its_pods(pods: list[tuple[Pod, int]], data: st.DataObject) -> None:
    """After any puts and takes the overlay equals a table built from what is there; its base never changes."""
    placed: dict[str, tuple[PodInfo, int]] = {}
    for index, (pod, row) in enumerate(pods):
        info = pod_info(make_pod(f"p{index}", *amounts_of(pod)))
        placed[info.uid] = (info, row)
    base = table(placed)
    untouched = numbers(base)
    overlay, here = NodeOverlay(base), dict(placed)
    away: dict[str, tuple[PodInfo, int]] = {}
    for _ in range(data.draw(st.integers(0, 6))):
        if here and data.draw(st.booleans()):
            chosen = data.draw(st.sets(st.sampled_from(sorted(here)), max_size=3))
            overlay.take([here[uid] for uid in chosen])
            away |= {uid: here.pop(uid) for uid in chosen}
        elif away:
            chosen = data.draw(st.sets(st.sampled_from(sorted(away)), max_size=3))
            overlay.put([away[uid] for uid in chosen])
            here |= {uid: away.pop(uid) for uid in chosen}
        assert numbers(overlay) == numbers(table(here))
    assert numbers(base) == untouched


def amounts_of(pod: Pod) -> tuple[str, str, int]:
    container = pod.spec.containers[0]
    requests = container.resources.requests or {}
    return str(requests["cpu"]), str(requests["example.com/gpu"]), container.ports[0].hostPort if container.ports else 0


def test_an_overlay_of_an_overlay() -> None:
    """Nominated Pods are put on top of a dry run's overlay: neither the overlay below nor the table sees them."""
    first, second = (pod_info(make_pod(name, "1", "0", 80)) for name in ("a", "b"))
    base = table({"a": (first, 0)})
    below = NodeOverlay(base)
    below.take([(first, 0)])
    above = NodeOverlay(below)
    above.put([(second, 0), (second, 1)])
    assert [nodes.pod_counts[:2].tolist() for nodes in (base, below, above)] == [[1, 0], [0, 0], [1, 1]]
    assert [nodes.ports.conflicting_rows([("0.0.0.0", "TCP", 80)]) for nodes in (base, below, above)] == [
        {0},
        set(),
        {0, 1},
    ]


def test_static_columns_are_the_tables() -> None:
    """Labels, taints and node objects are shared, so plugins see the same nodes."""
    base = table({})
    overlay = NodeOverlay(base)
    assert overlay.node(0) is base.node(0)
    assert np.array_equal(overlay.order(), base.order())
    assert overlay.labels("kubernetes.io/hostname") is base.labels("kubernetes.io/hostname")
