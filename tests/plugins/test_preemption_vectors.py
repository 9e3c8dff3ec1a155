"""Preemption against answers of kube-scheduler 1.37.2, kept in tests/vectors/schedule_preemption.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.preemption_world import differences

VECTORS = Path(__file__).parents[1] / "vectors" / "schedule_preemption.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in VECTORS.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_same_preemption_as_kube_scheduler(case: dict[str, Any]) -> None:
    """Whether the Pod fits, the message, the nominated node (or one of equal worth) and the victims are upstream's."""
    assert not {"input_error", "panic"} & case["answer"].keys()
    assert differences(case) == []


def test_the_vectors_cover_the_rules() -> None:
    """Victims of several kinds, budgets, nominations and every way to fail are in the file, or it proves little."""
    preemptions = [case["answer"]["preemption"] for case in CASES if "preemption" in case["answer"]]
    assert sum(bool(entry["nominated_node"]) for entry in preemptions) >= 15
    candidates = [found for entry in preemptions for found in entry.get("candidates", {}).values()]
    assert {min(len(found["victims"]), 3) for found in candidates} == {1, 2, 3}
    assert {min(found["pdb_violations"], 1) for found in candidates} == {0, 1}
    texts = " ".join(reason for entry in preemptions for reason in entry["status"].get("reasons", ()))
    for text in (
        "preemptionPolicy=Never",
        "terminating pod on the nominated node",
        "Preemption is not helpful for scheduling",
        "No preemption victims found for incoming pod",
        "Insufficient cpu",
        "didn't match pod anti-affinity rules",
        "didn't match pod topology spread constraints",
    ):
        assert text in texts, text
    assert any("selected" in case["answer"] for case in CASES)
