"""The volume plugins against answers of kube-scheduler 1.37.2, kept in tests/vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.volume_world import CLASSES, differences

VECTORS = Path(__file__).parents[1] / "vectors" / "schedule_volumes.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in VECTORS.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_same_answers_as_kube_scheduler(case: dict[str, Any]) -> None:
    """PreFilter rejections, skipped filters, every rejection of a node and all scores are upstream's."""
    assert "input_error" not in case["answer"]
    assert "panic" not in case["answer"]
    assert differences(case) == []


def test_the_vectors_cover_every_rule() -> None:
    """Each text is given somewhere and the score tells nodes apart somewhere, or the file proves nothing."""
    texts = {
        reason
        for case in CASES
        for by in case["answer"].get("failures", {}).values()
        for name, status in by.items()
        if name in CLASSES
        for reason in status["reasons"]
    }
    assert {
        "node(s) had no available disk",
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
        "another pod",
        "node(s) exceed max volume count",
        "a.csi.io CSI driver is not installed on the node",
        "node(s) didn't match PersistentVolume's node affinity",
        "node(s) didn't find available persistent volumes to bind",
        "node(s) did not have enough free storage",
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        "node(s) had no available volume zone",
    } <= texts
    refusals = {
        (case["answer"]["prefilter"]["plugin"], case["answer"]["prefilter"]["reasons"][0].partition('"')[0])
        for case in CASES
        if case["answer"]["prefilter"]["code"] != "Success"
    }
    assert {
        ("VolumeRestrictions", "persistentvolumeclaim "),
        ("VolumeBinding", "persistentvolumeclaim "),
        ("VolumeBinding", "pod has unbound immediate PersistentVolumeClaims"),
        ("VolumeBinding", "waiting for ephemeral volume controller to create the persistentvolumeclaim "),
        ("VolumeZone", "persistentvolume "),
    } <= refusals
    scores = [
        {by["VolumeBinding"] for by in case["answer"]["scores"].values()}
        for case in CASES
        if "scores" in case["answer"]
    ]
    assert sum(len(found) > 1 for found in scores) >= 5
