"""Metrics keep upstream's names, labels and buckets."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.api.kinds import RESOURCE_CLAIM
from scheduler.edge.metrics import Metrics, attempts_label, exponential
from scheduler.edge.reflector import Counters


def families(metrics: Metrics) -> dict[str, tuple[str, set[str]]]:
    """Type and label names per family, as a scraper reads them."""
    found: dict[str, tuple[str, set[str]]] = {}
    for family in text_string_to_metric_families(metrics.render()[0].decode()):
        labels = {label for sample in family.samples for label in sample.labels}
        found[family.name] = (family.type, labels)
    return found


def test_names_labels_and_types_of_upstream() -> None:
    """What dashboards for kube-scheduler read is there under the same name."""
    metrics = Metrics()
    metrics.attempt("scheduled", "dra-scheduler", 0.01)
    metrics.pod_bound(20, 3.0)
    metrics.extension_point_duration.observe(("Filter", "Success", "dra-scheduler"), 0.001)
    metrics.plugin_duration.observe(("NodeName", "Filter", "Success"), 0.001)
    metrics.queue_incoming.add(("active", "PodAdd"))
    metrics.cache_size.labels("nodes").set(3)
    metrics.request_seen("h", "POST", 201, 0.01)
    found = families(metrics)
    assert found["scheduler_schedule_attempts"] == ("counter", {"result", "profile"})
    assert found["scheduler_scheduling_attempt_duration_seconds"] == ("histogram", {"result", "profile", "le"})
    assert found["scheduler_framework_extension_point_duration_seconds"] == (
        "histogram",
        {"extension_point", "status", "profile", "le"},
    )
    assert found["scheduler_plugin_execution_duration_seconds"][1] == {"plugin", "extension_point", "status", "le"}
    assert found["scheduler_pending_pods"] == ("gauge", {"queue"})
    assert found["scheduler_queue_incoming_pods"] == ("counter", {"queue", "event"})
    assert found["scheduler_pod_scheduling_sli_duration_seconds"] == ("histogram", {"attempts", "le"})
    assert found["scheduler_cache_size"] == ("gauge", {"type"})
    assert found["rest_client_requests"] == ("counter", {"code", "host", "method"})
    text = metrics.render()[0].decode()
    assert 'scheduler_pod_scheduling_sli_duration_seconds_count{attempts="15+"} 1.0' in text
    assert "_created" not in text
    assert "scheduler_schedule_attempts_total{" in text


@pytest.mark.parametrize(
    ("first", "factor", "count", "borders"),
    [(0.001, 2, 15, (0.001, 0.002, 16.384)), (1, 2, 5, (1, 2, 16)), (0.00001, 1.5, 20, (1e-05, 1.5e-05, None))],
)
def test_buckets(first: float, factor: float, count: int, borders: tuple[float | None, ...]) -> None:
    """exp(a, f, n) has n borders and no rounding noise."""
    made = exponential(first, factor, count)
    assert len(made) == count
    assert made[:2] == borders[:2]
    assert borders[2] is None or made[-1] == borders[2]


def test_attempts_label_is_bounded() -> None:
    """1 to 14, then 15+."""
    assert [attempts_label(number) for number in (1, 14, 15, 900)] == ["1", "14", "15+", "15+"]


def test_two_schedulers_in_one_process() -> None:
    """Registries are separate."""
    first, second = Metrics(), Metrics()
    first.binds.add(("bound",))
    assert 'dra_scheduler_bind_results_total{result="bound"} 1.0' in first.render()[0].decode()
    assert 'result="bound"' not in second.render()[0].decode()


def test_readings_of_watches_and_events() -> None:
    """What reflectors and the recorder count is shown as it is when somebody asks."""

    class Reflector:
        kind = RESOURCE_CLAIM
        counters = Counters(lists=1, watches=2, events=3, failures=4)

    class Recorder:
        dropped = 5

    metrics, reflector, recorder = Metrics(), Reflector(), Recorder()
    metrics.read_from([reflector], recorder)
    reflector.counters.events = 30
    text = metrics.render()[0].decode()
    assert 'dra_scheduler_watch_events_total{resource="resourceclaims.resource.k8s.io"} 30.0' in text
    assert 'dra_scheduler_watch_failures_total{resource="resourceclaims.resource.k8s.io"} 4.0' in text
    assert "dra_scheduler_events_dropped_total 5.0" in text


def test_tallies_read_as_the_librarys_own_metrics_do() -> None:
    """The same observations in a prometheus-client Histogram and Counter give the same text."""
    from prometheus_client import CollectorRegistry, Counter, Histogram
    from prometheus_client.exposition import generate_latest

    from scheduler.edge.tallies import TallyCounter, TallyHistogram

    Metrics()  # times of creation are left out from then on, in the whole process
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    buckets = exponential(0.00001, 1.5, 20)
    mine = TallyHistogram("h_seconds", "text", buckets, ("a", "b"), ours)
    other = Histogram("h_seconds", "text", ("a", "b"), buckets=buckets, registry=theirs)
    for value in (0.0, 0.00001, 0.0003, 5.0):
        mine.observe(("x", "y"), value)
        other.labels("x", "y").observe(value)
    count = TallyCounter("c_total", "text", ("a",), ours)
    count.add(("x",))
    count.add(("x",), 2)
    Counter("c_total", "text", ("a",), registry=theirs).labels("x").inc(3)
    assert generate_latest(ours) == generate_latest(theirs)


def test_hidden_and_disabled_metrics() -> None:
    """What 1.37 hides is shown on demand; a name that is disabled is gone."""
    name = "scheduler_preemption_goroutines_duration_seconds"
    assert name not in Metrics().render()[0].decode()
    metrics = Metrics(hidden=True, disabled={"scheduler_pending_pods", "scheduler_plugin_evaluation_total"})
    text = metrics.render()[0].decode()
    assert name in text
    assert "scheduler_pending_pods" not in text
    assert "scheduler_plugin_evaluation_total" not in text


def test_gates_and_version_are_shown() -> None:
    """kubernetes_build_info and kubernetes_feature_enabled, as every component has them."""
    metrics = Metrics()
    metrics.gates({"A": True, "B": False})
    text = metrics.render()[0].decode()
    assert 'kubernetes_feature_enabled{name="A",stage=""} 1.0' in text
    assert 'kubernetes_feature_enabled{name="B",stage=""} 0.0' in text
    assert 'git_version="v1.37.2"' in text
