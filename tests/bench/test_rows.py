"""What an attempt costs grows with what changed, not with the cluster: counted in rows plugins were asked about."""

from __future__ import annotations

import pytest

from e2e.bench.micro import DECIDED, Bench, rows_asked
from e2e.bench.workloads import WORKLOADS, node
from scheduler.api.kinds import NODE

PLUGINS_MAX = 12
"""Plugins with a vector of their own in the default profile: each may ask about a changed row once per point."""


@pytest.mark.parametrize("name", DECIDED)
def test_after_a_binding_only_changed_rows_are_asked_about(name: str) -> None:
    """Equal Pods, each bound before the next is decided: as many rows at 60 nodes as at 240."""
    few = rows_asked(WORKLOADS[name], 60, 8)
    many = rows_asked(WORKLOADS[name], 240, 8)
    assert few == many
    assert 0 < many <= PLUGINS_MAX


@pytest.mark.parametrize("name", DECIDED)
def test_the_first_attempt_asks_about_every_row(name: str) -> None:
    """Else the count above would prove nothing."""
    bench = Bench(WORKLOADS[name], 60)
    bench.place(bench.pod(0))
    assert bench.profile.classes.evaluations >= 60


@pytest.mark.parametrize("name", ["plain", "spread", "preferred-affinity", "device"])
def test_a_changed_node_is_asked_about_again_alone(name: str) -> None:
    """Its label changes; the rows of the others keep their answers."""
    bench = Bench(WORKLOADS[name], 120)
    for index in range(5):
        bench.place(bench.pod(index))
    body = node(7)
    body["metadata"]["labels"]["example.com/new"] = "x"
    bench.put(NODE, body)
    before = bench.profile.classes.evaluations
    bench.place(bench.pod(5))
    assert bench.profile.classes.evaluations - before <= 2 * 2 * PLUGINS_MAX
