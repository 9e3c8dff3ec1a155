"""What the benchmark reads from metrics and how it prints medians and ratios."""

from __future__ import annotations

import pytest

from e2e.bench.measure import OURS, PAUSES, SLI, THEIRS, Result, own_requests, pods_per_s, quantile_ms
from e2e.bench.table import details, summary

HISTOGRAM = """
{name}_bucket{{attempts="1",le="0.01"}} 90.0
{name}_bucket{{attempts="1",le="0.02"}} 100.0
{name}_bucket{{attempts="1",le="+Inf"}} 100.0
{name}_bucket{{attempts="2",le="0.01"}} 0.0
{name}_bucket{{attempts="2",le="0.02"}} 0.0
{name}_bucket{{attempts="2",le="+Inf"}} 100.0
"""


def test_a_quantile_is_read_over_all_labels_and_inside_its_bucket() -> None:
    """Beyond the last border the border itself is all that is known."""
    text = HISTOGRAM.format(name=SLI)
    assert quantile_ms(text, 0.225) == pytest.approx(5.0)
    assert quantile_ms(text, 0.475) == pytest.approx(15.0)
    assert quantile_ms(text, 0.99) == pytest.approx(20.0)
    assert quantile_ms(text, 0.5, PAUSES) == 0.0
    assert quantile_ms(HISTOGRAM.format(name=PAUSES), 0.45, PAUSES) == pytest.approx(10.0)


def test_the_schedulers_own_requests_are_added_up_by_verb() -> None:
    """Failed ones count, hosts do not matter."""
    text = (
        'rest_client_requests_total{code="201",host="a",method="POST"} 3\n'
        'rest_client_requests_total{code="409",host="b",method="POST"} 1\n'
        'rest_client_requests_total{code="200",host="a",method="PATCH"} 2.0\n'
        'rest_client_request_duration_seconds_count{method="POST"} 9\n'
    )
    assert own_requests(text) == {"POST": 4.0, "PATCH": 2.0}


def test_the_rate_is_that_of_the_middle_and_none_bound_is_none() -> None:
    """The first and the last tenth are start and end, not speed."""
    assert pods_per_s([0.0] + [10.0 + index / 100 for index in range(100)] + [99.0]) == pytest.approx(100, rel=0.05)
    assert pods_per_s([]) == 0.0
    assert pods_per_s([5.0]) > 0


def run(scheduler: str, speed: float, cpu: float, **more: float) -> Result:
    """One run."""
    result = Result("plain", scheduler, 10, pods_per_s=speed, cpu_ms={"scheduler": cpu, "etcd": 1.0})
    result.own_requests = {"POST": 2.0 if scheduler == THEIRS else 1.0}
    result.requests = {"POST pods/binding": 1.0, "WATCH pods": 0.5, "POST events": 1.0}
    for name, value in more.items():
        setattr(result, name, value)
    return result


def test_medians_and_ratios() -> None:
    """Three alternating rounds; a workload that only one scheduler ran has no row."""
    results = [run(THEIRS, 100, 4), run(OURS, 150, 1), run(THEIRS, 90, 5), run(OURS, 400, 1, pause_p99_ms=7.5)]
    results += [run(THEIRS, 500, 3), run(OURS, 200, 2), Result("alone", OURS, 10, pods_per_s=7)]
    short, long = summary(results), details(results)
    assert "| plain | 100 | 200 | 2.00 | 4.00 | 1.00 | 0.25 |" in short
    assert "alone" not in short
    assert "alone" not in long
    for row in (
        "| plain | POST requests/Pod of the scheduler | 2.00 | 1.00 | 0.50 |",
        "| plain | POST requests/Pod of everybody | 2.00 | 2.00 | 1.00 |",
        "| plain | CPU ms/Pod, etcd | 1.00 | 1.00 | 1.00 |",
    ):
        assert row in long
    assert "loop pause" not in details(results[:2])
