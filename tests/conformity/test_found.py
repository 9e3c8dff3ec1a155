"""Cases that random runs found, minimised, with upstream's answer (tests/vectors/found_*.jsonl)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.conformity.compare import allocate_facts, cel_facts, difference
from e2e.conformity.rules import RULES, explain
from e2e.conformity.run import answer

VECTORS = Path(__file__).parent.parent / "vectors"


def _cases(name: str) -> list[Any]:
    cases = [json.loads(line) for line in (VECTORS / name).read_text(encoding="utf-8").splitlines()]
    return [pytest.param(case, id=case["name"]) for case in cases]


@pytest.mark.parametrize("case", _cases("found_allocate.jsonl"))
def test_found_allocate_case(case: dict[str, Any]) -> None:
    """A case that once differed gets upstream's answer."""
    (ours,) = answer("allocate", [case])
    assert difference(allocate_facts(ours), allocate_facts(case["answer"])) == {}


@pytest.mark.parametrize("case", _cases("found_cel.jsonl"))
def test_found_cel_case(case: dict[str, Any]) -> None:
    """An expression that once differed gets upstream's value, error text and cost."""
    upstream = case.pop("answer")
    (ours,) = answer("cel", [case])
    assert difference(cel_facts(ours), cel_facts(upstream)) == {}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_accepted_difference(rule: Any) -> None:
    """Each accepted difference has a case in which we answer otherwise, and this rule is the one that explains it."""
    facts = {"allocate": allocate_facts, "cel": cel_facts}[rule.kind]
    cases = [json.loads(line) for line in (VECTORS / f"accepted_{rule.kind}.jsonl").read_text("utf-8").splitlines()]
    mine = [case for case in cases if case["name"].startswith(rule.name)]
    assert mine
    for case in mine:
        upstream = case.pop("answer")
        (ours,) = answer(rule.kind, [case])
        assert difference(facts(ours), facts(upstream))
        assert explain(rule.kind, case, ours, upstream) is rule
