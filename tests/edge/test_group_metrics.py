"""Metrics of PodGroup cycles: there with the gate alone, under kube-scheduler's names."""

from __future__ import annotations

from scheduler.app.meters import ServiceMeter
from scheduler.edge.group_metrics import NAMES
from scheduler.edge.metrics import Metrics


def test_cycles_are_counted_by_result_and_timed_in_both_parts() -> None:
    """The algorithm's duration has no labels, the attempt's has result and profile."""
    metrics = Metrics(groups=True)
    ServiceMeter(metrics).group_attempt("unschedulable", "dra-scheduler", 0.5, 0.25)
    labels = {"result": "unschedulable", "profile": "dra-scheduler"}
    attempts, attempt_duration, algorithm_duration = NAMES
    assert metrics.registry.get_sample_value(attempts, labels) == 1
    assert metrics.registry.get_sample_value(f"{attempt_duration}_sum", labels) == 0.5
    assert metrics.registry.get_sample_value(f"{algorithm_duration}_sum") == 0.25


def test_without_the_gate_none_of_them_is_exposed() -> None:
    """And nothing breaks when somebody counts; one that is disabled is not exposed either."""
    metrics = Metrics()
    ServiceMeter(metrics).group_attempt("scheduled", "dra-scheduler", 0.5, 0.25)
    assert b"podgroup" not in metrics.render()[0]
    assert NAMES[2].encode() not in Metrics(groups=True, disabled=(NAMES[2],)).render()[0]
