"""Spread, inter-Pod affinity and declared features against answers of kube-scheduler 1.37.2, kept in tests/vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.topology_world import CLASSES, differences

VECTORS = Path(__file__).parents[1] / "vectors" / "schedule_topology.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in VECTORS.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_same_answers_as_kube_scheduler(case: dict[str, Any]) -> None:
    """Skipped filters, PreFilter errors, every rejection, raw and normalized scores are upstream's."""
    assert "input_error" not in case["answer"]
    assert "panic" not in case["answer"]
    assert differences(case) == []


def test_the_vectors_cover_every_rule() -> None:
    """Each text is given somewhere and each score tells nodes apart somewhere, or the file proves nothing."""
    texts = {
        reason
        for case in CASES
        for by in case["answer"].get("failures", {}).values()
        for name, status in by.items()
        if name in CLASSES
        for reason in status["reasons"]
    }
    assert texts == {
        "node(s) didn't match pod topology spread constraints",
        "node(s) didn't match pod topology spread constraints (missing required label)",
        "node(s) didn't match pod affinity rules",
        "node(s) didn't match pod anti-affinity rules",
        "node(s) didn't satisfy existing pods anti-affinity rules",
        "node(s) didn't match Pod's required features",
    }
    differing = {
        name
        for case in CASES
        for name in CLASSES
        if len({by.get(name) for by in case["answer"].get("raw_scores", {}).values()}) > 1
    }
    assert differing == {"PodTopologySpread", "InterPodAffinity"}
    assert any("score_error" in case["answer"] for case in CASES)
    assert {case["answer"]["prefilter"]["code"] for case in CASES} == {
        "Success",
        "Error",
        "UnschedulableAndUnresolvable",
    }
