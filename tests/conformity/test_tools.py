"""The tools of the differential run: generators, comparison, shrinking, seeded faults. No Go needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e2e.conformity.allocate_cases import allocate_cases
from e2e.conformity.cel_cases import cel_cases, cel_functions
from e2e.conformity.compare import allocate_facts, difference, no_answer
from e2e.conformity.coverage import Coverage, error_class
from e2e.conformity.mutations import MUTATIONS
from e2e.conformity.run import answer, unexplained
from e2e.conformity.shrink import shrink
from e2e.conformity.shrink_cel import shrink_cel

ROOT = Path(__file__).resolve().parents[2]


def test_one_seed_gives_the_same_cases_and_a_longer_run_begins_alike() -> None:
    """A printed seed repeats a run, whatever its length."""
    for cases in (allocate_cases, cel_cases):
        assert list(cases(5, 40)) == list(cases(5, 60))[:40]
        assert list(cases(5, 40)) != list(cases(6, 40))


def test_every_generated_case_can_be_read() -> None:
    """No input_error on our side, in either format."""
    assert [a for a in answer("allocate", list(allocate_cases(1, 300))) if "input_error" in a] == []
    assert [a for a in answer("cel", list(cel_cases(1, 400))) if "input_error" in a] == []


def test_generated_cases_are_of_both_kinds() -> None:
    """By our own answers: 30 to 70 in 100 allocatable, and no feature missing from 600 cases."""
    cases = list(allocate_cases(2, 600))
    coverage = Coverage()
    for case, ours in zip(cases, answer("allocate", cases), strict=True):
        coverage.add(case, ours)
    assert 0.3 <= coverage.allocatable <= 0.7
    assert coverage.thin(15) == []


def test_templates_name_functions_of_all_libraries() -> None:
    """A library that is left out would not be compared."""
    assert {
        "optional.of", "cel.bind", "transformMapEntry", "format", "sets.intersects", "lists.range", "isSorted",
        "findAll",
        "getEscapedPath", "asApproximateFloat", "containsCIDR", "format.dns1123Label", "isSemver", "getMilliseconds",
    } <= cel_functions()  # fmt: skip


def allocation(amount: str) -> dict[str, Any]:
    """An answer with one share."""
    result = {"device": "a", "consumedCapacity": {"mem": amount}}
    return {"allocated": True, "results": [{"devices": {"results": [result]}}]}


def test_answers_compare_quantities_by_value_and_errors_by_meaning() -> None:
    """1Gi and 1073741824 are equal, 1Gi and 1G are not; which of several devices an error names is open."""
    assert difference(allocate_facts(allocation("1Gi")), allocate_facts(allocation("1073741824"))) == {}
    assert "results" in difference(allocate_facts(allocation("1Gi")), allocate_facts(allocation("1G")))
    one, other = (
        {
            "error_kind": "fatal",
            "error": f"claim c: selector #0 on device d/p/{name}: CEL runtime error: no such key: x",
        }
        for name in "ab"
    )
    assert difference(allocate_facts(one), allocate_facts(other)) == {}
    assert no_answer({"error_kind": "timeout"})
    assert no_answer({"error_kind": "runtime", "error": "operation interrupted: timeout"})
    assert not no_answer({"error_kind": "runtime", "error": "no such key: x"})


def test_a_difference_without_rule_is_unexplained() -> None:
    """Rules accept only what they are made for."""
    case = next(iter(allocate_cases(1, 1)))
    assert unexplained("allocate", case, {"allocated": True}, {"allocated": False})
    assert not unexplained("allocate", case, {"allocated": True}, {"error_kind": "timeout"})


def test_shrinking_keeps_what_makes_a_case_fail() -> None:
    """All slices, claims and fields that do not matter are gone; the culprit and what the API needs stay."""
    case = next(case for case in allocate_cases(3, 100) if '"NoExecute"' in json.dumps(case["slices"]))

    def fails(batch: Sequence[dict[str, Any]]) -> list[bool]:
        return ['"NoExecute"' in json.dumps(one["slices"]) for one in batch]

    small = shrink(case, fails)
    assert len(small["slices"]) == 1
    assert small["claims"] == []
    (device,) = small["slices"][0]["spec"]["devices"]
    assert set(device) == {"name", "taints"}


def test_shrinking_an_expression_finds_the_part_that_fails() -> None:
    """The call that makes it fail is left, with as little around it as possible."""
    device = {"driver": "d", "attributes": {"a": {"int": 1}}}
    text = "true && ([3, 1].map(x, x + 1).isSorted() || 'a'.matches('a')) && 1 in [2]"

    def fails(batch: Sequence[dict[str, Any]]) -> list[bool]:
        return ["isSorted" in one["expression"] for one in batch]

    small = shrink_cel({"name": "x", "expression": text, "device": device}, fails)
    assert small["device"]["attributes"] == {}
    assert len(small["expression"]) < 20


def test_each_seeded_fault_applies_and_has_a_rule_of_its_own() -> None:
    """A fault whose text is gone or doubled would test nothing; there are at least 40."""
    texts = {mutation.file: (ROOT / mutation.file).read_text(encoding="utf-8") for mutation in MUTATIONS}
    assert [m.rule for m in MUTATIONS if texts[m.file].count(m.old) != 1] == []
    assert len({mutation.rule for mutation in MUTATIONS}) == len(MUTATIONS) >= 40
    for mutation in MUTATIONS:
        compile(texts[mutation.file].replace(mutation.old, mutation.new), mutation.file, "exec")


def test_error_classes() -> None:
    """Texts with particulars fall into classes without."""
    assert error_class("runtime", "no such key: model") == "runtime: no such key"
    assert error_class("runtime", "return error for overflow") == "runtime: overflow"
    assert error_class("compile", "compilation failed: ERROR: <input>:1:1: undeclared reference to 'x'").startswith(
        "compile: undeclared"
    )
    assert error_class("runtime", "never seen") == "other: runtime: never seen"
