"""Comparing our answers with upstream's: by value where upstream's form is not defined."""

from __future__ import annotations

import json
import re
from typing import Any

from scheduler.api.quantity import parse_quantity

Json = dict[str, Any]


def _by_value(allocation: Json) -> Json:
    copy: Json = json.loads(json.dumps(allocation))
    for result in copy.get("devices", {}).get("results", ()):
        consumed = result.get("consumedCapacity")
        if consumed is not None:
            result["consumedCapacity"] = {name: hash(parse_quantity(text)) for name, text in consumed.items()}
    return copy


def _error(text: str | None) -> str | None:
    """An error without what upstream leaves open: which of several offending devices, how a compile error reads."""
    if text is None:
        return None
    text = re.sub(r"on device [^ ]+: CEL runtime error", "on device *: CEL runtime error", text)
    return re.sub(r"CEL compile error: .*", "CEL compile error", text, flags=re.DOTALL)


def facts(answer: Json, exact_errors: bool = False) -> tuple[Any, ...]:
    """What two answers must agree in."""
    error = answer.get("error")
    return (
        answer.get("allocated", False),
        error if exact_errors else _error(error),
        answer.get("error_kind"),
        [_by_value(allocation) for allocation in answer.get("results") or ()],
    )
