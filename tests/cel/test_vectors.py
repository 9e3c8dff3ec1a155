"""Expressions with the answer of kube-scheduler 1.37's own evaluator (tests/vectors/cel.jsonl), replayed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.api.quantity import parse_quantity
from scheduler.cel import CelDevice, CompileError, EvaluationError, compile_selector

VECTORS = Path(__file__).parent.parent / "vectors"
GROUPS = 26


def _device(data: dict[str, Any]) -> CelDevice:
    attributes: dict[str, Any] = {}
    for name, value in data["attributes"].items():
        attributes[name] = next(iter(value.items()), ("unknown", None))
    capacity = {name: parse_quantity(entry["value"]) for name, entry in data["capacity"].items()}
    return CelDevice(data["driver"], attributes, capacity, data.get("allowMultipleAllocations", False))


DEVICES = {name: _device(data) for name, data in json.loads((VECTORS / "cel_devices.json").read_text("utf-8")).items()}


def _cases(group: int) -> Iterator[dict[str, Any]]:
    with (VECTORS / "cel.jsonl").open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number % GROUPS == group:
                yield json.loads(line)


def _answer(expression: str, device: CelDevice) -> dict[str, Any]:
    try:
        selector = compile_selector(expression)
    except CompileError:
        return {"error_kind": "compile"}
    try:
        match, cost = selector.evaluate_with_cost(device)
    except EvaluationError as error:
        return {"error": error.message, "error_kind": error.kind}
    return {"match": match, "cost": cost}


@pytest.mark.parametrize("group", range(GROUPS))
def test_answers_are_upstreams(group: int) -> None:
    """Match, kind of error, text of run-time errors and cost are those of kube-scheduler."""
    cases = list(_cases(group))
    assert len(cases) > 100
    for case in cases:
        assert _answer(case["expression"], DEVICES[case["device"]]) == case["answer"], case["expression"]


@pytest.mark.parametrize("group", range(GROUPS))
def test_equal_read_keys_mean_equal_answers(group: int) -> None:
    """Devices on which an expression reads the same values get the same answer: the memo may share it."""
    for case in _cases(group):
        try:
            selector = compile_selector(case["expression"])
        except CompileError:
            continue
        by_key: dict[Any, Any] = {}
        for device in DEVICES.values():
            answer = _answer(case["expression"], device)
            assert by_key.setdefault(selector.read_key(device), answer) == answer, case["expression"]
