"""``dra-scheduler conformity schedule``: a line for each line, and kube-scheduler's answers replayed without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.conformity.schedule_compare import schedule_difference
from scheduler.cli.conformity_schedule import run_schedule

VECTORS = Path(__file__).parents[1] / "vectors" / "schedule_whole.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}


def answers(*cases: object) -> list[Any]:
    lines = [case if isinstance(case, bytes) else json.dumps(case).encode() for case in cases]
    return [json.loads(line) for line in run_schedule(lines)]


def test_every_line_has_its_answer() -> None:
    """In order; a case that cannot be used says why and the run goes on; empty lines are no cases."""
    unknown = {"name": "unknown", "pod": POD, "more": 1}
    kind = {"name": "kind", "pod": POD, "objects": [{"kind": "Widget", "apiVersion": "v1", "metadata": {"name": "w"}}]}
    found = answers({"name": "first", "pod": POD}, b"\n", unknown, b"{nonsense", kind, {"name": "last", "pod": POD})
    assert [one["name"] for one in found] == ["first", "unknown", "", "kind", "last"]
    assert ["input_error" in one for one in found] == [False, True, True, True, False]
    assert "unknown field `more`" in found[1]["input_error"]
    assert found[3]["input_error"] == "v1, Kind=Widget: is not a kind that the scheduler reads"


def test_a_configuration_that_is_refused() -> None:
    """It is the case's fault, told with kube-scheduler's words."""
    config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "parallelism": -1}
    (found,) = answers({"name": "c", "pod": POD, "config": config})
    assert "parallelism" in found["input_error"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_same_answers_as_kube_scheduler(case: dict[str, Any]) -> None:
    """Verdicts, reasons, scores, choice, message and victims of whole attempts are upstream's."""
    (ours,) = answers({key: value for key, value in case.items() if key != "answer"})
    assert schedule_difference(ours, case["answer"]) == {}


def test_the_vectors_are_of_every_kind() -> None:
    """Every topic is there, with Pods that find a node and Pods that do not, and preemption."""
    topics = {case["name"].partition("-")[0] for case in CASES}
    assert topics >= {"basic", "topology", "neighbours", "preemption", "twins", "devices", "pools", "volumes", "mixed"}
    selected = sum("selected" in case["answer"] for case in CASES)
    assert 0.3 < selected / len(CASES) < 0.7
    assert sum(bool((case["answer"].get("preemption") or {}).get("victims")) for case in CASES) >= 4
