"""Upstream's own allocator cases, replayed (tests/vectors; NOTICE names their origin)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli.conformity import run_allocate

from .answers import facts

VECTORS = Path(__file__).parent.parent / "vectors"


def _cases(name: str) -> list[Any]:
    cases = [json.loads(line) for line in (VECTORS / name).read_text().splitlines()]
    return [pytest.param(case, id=case["name"]) for case in cases]


def _answer(case: dict[str, Any]) -> dict[str, Any]:
    (line,) = run_allocate([json.dumps(case)])
    answer: dict[str, Any] = json.loads(line)
    return answer


@pytest.mark.parametrize("case", _cases("allocate.jsonl"))
def test_upstreams_case(case: dict[str, Any]) -> None:
    """Each case of upstream's table gets upstream's devices, configuration, node selector and error text."""
    assert facts(_answer(case), exact_errors=True) == facts(case["answer"], exact_errors=True)


@pytest.mark.parametrize("case", _cases("quirks_allocate.jsonl"))
def test_surprising_case(case: dict[str, Any]) -> None:
    """Each case where upstream surprises is answered the same way."""
    assert facts(_answer(case), exact_errors=True) == facts(case["answer"], exact_errors=True)


def test_a_broken_line_does_not_end_the_run() -> None:
    """Unknown fields and wrong types answer input_error, and the next case is still answered."""
    lines = ['{"name": "x", "nodes": {}}', '{"name": "y", "node": 3}', "nonsense", '{"name": "z", "node": {}}']
    answers = [json.loads(line) for line in run_allocate(lines)]
    assert [answer["name"] for answer in answers] == ["x", "y", "", "z"]
    assert ["input_error" in answer for answer in answers] == [True, True, True, False]
