"""What two answers to one case must agree in, as small plain values."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any

from scheduler.api.quantity import parse_quantity

Json = dict[str, Any]

_DEVICE = re.compile(r"on device [^ ]+: CEL runtime error")
_COMPILE = re.compile(r"(CEL compile error|compile derived attribute [^ ]+ failed): .*", re.DOTALL)
# Upstream prints its Go struct; the part that tells what is wrong comes after it.
_GO_STRUCT = re.compile(r"failed to parse node selector .*?: ", re.DOTALL)


def allocation_value(allocation: Json) -> Json:
    """An allocation with quantities as exact numbers, so that equal amounts compare equal."""
    copy: Json = json.loads(json.dumps(allocation))
    for result in copy.get("devices", {}).get("results", ()):
        consumed = result.get("consumedCapacity")
        if consumed is not None:
            result["consumedCapacity"] = {name: _number(text) for name, text in consumed.items()}
    return copy


def _number(text: str) -> str:
    quantity = parse_quantity(text)
    return str(quantity.mantissa * Fraction(10) ** quantity.power)


def error_meaning(text: str | None) -> str | None:
    """An error text without what upstream leaves open.

    Which of several offending devices a runtime error names is random upstream; what a compile error says after its
    prefix may be our own.
    """
    if text is None:
        return None
    text = _DEVICE.sub("on device *: CEL runtime error", text)
    text = _COMPILE.sub(r"\1", text)
    return _GO_STRUCT.sub("failed to parse node selector: ", text)


def allocate_facts(answer: Json) -> Json:
    """What two answers of ``allocate`` must agree in."""
    for key in ("input_error", "panic"):
        if key in answer:
            return {key: answer[key]}
    facts: Json = {
        "allocated": answer.get("allocated", False),
        "error": error_meaning(answer.get("error")),
        "error_kind": answer.get("error_kind"),
        "results": [allocation_value(allocation) for allocation in answer.get("results") or ()],
    }
    return {key: value for key, value in facts.items() if value or key == "allocated"}


def cel_facts(answer: Json) -> Json:
    """What two answers of ``cel`` must agree in: the cost only where the expression completes."""
    for key in ("input_error", "panic"):
        if key in answer:
            return {key: answer[key]}
    facts: Json = {"match": answer.get("match"), "error_kind": answer.get("error_kind")}
    if answer.get("error_kind") in ("runtime", "cost"):
        facts["error"] = answer.get("error")
    if answer.get("match") is not None:
        facts["cost"] = answer.get("cost")
    return facts


def no_answer(answer: Json) -> bool:
    """Whether upstream gave none: it ran into its deadline."""
    return answer.get("error_kind") in ("timeout", "hang") or "operation interrupted" in answer.get("error", "")


def difference(ours: Json, theirs: Json) -> Json:
    """The facts that differ, as key -> [ours, upstream's]; empty when they agree."""
    return {
        key: [ours.get(key), theirs.get(key)] for key in sorted({*ours, *theirs}) if ours.get(key) != theirs.get(key)
    }
