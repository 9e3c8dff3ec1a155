"""``dra-scheduler conformity cel``: evaluate one expression on one device per line, in the oracle's format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from scheduler.api.quantity import QuantityError, parse_quantity
from scheduler.api.resource import DeviceAttribute, DeviceCapacity
from scheduler.cel import CelDevice, CompileError, EvaluationError, compile_selector
from scheduler.cli.case_lines import answer_lines
from scheduler.dra.devices import attribute_value


class CaseError(ValueError):
    """A case that can be read but not used. Other errors are faults of ours and are not caught."""


class _CelDevice(msgspec.Struct, forbid_unknown_fields=True):
    driver: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    allowMultipleAllocations: bool | None = None


class CelCase(msgspec.Struct, forbid_unknown_fields=True):
    """One case. ``listTypeAttributes`` changes nothing for stored expressions; ``answer`` and ``meta`` are ignored."""

    name: str = ""
    expression: str = ""
    device: _CelDevice = msgspec.field(default_factory=_CelDevice)
    listTypeAttributes: bool = False
    new: bool = False
    answer: Any = None
    meta: Any = None


_DECODER = msgspec.json.Decoder(CelCase)


def answer_cel(case: CelCase) -> dict[str, Any]:
    """Our answer to one case. Raises CaseError or QuantityError when the case itself cannot be used."""
    if case.new:
        raise CaseError("new: expressions being stored are checked by the API server, not by a scheduler")
    answer: dict[str, Any] = {"name": case.name}
    try:
        selector = compile_selector(case.expression)
    except CompileError as error:
        return answer | {"error": error.message, "error_kind": "compile"}
    device = CelDevice(
        case.device.driver,
        {name: attribute_value(value) for name, value in (case.device.attributes or {}).items()},
        {name: parse_quantity(value.value) for name, value in (case.device.capacity or {}).items()},
        bool(case.device.allowMultipleAllocations),
    )
    try:
        match, cost = selector.evaluate_with_cost(device)
    except EvaluationError as error:
        return answer | {"error": error.message, "error_kind": error.kind, "cost": error.cost}
    return answer | {"match": match, "cost": cost}


def run_cel(lines: Iterable[str | bytes]) -> Iterator[bytes]:
    """One answer line per case line, in order. A case that cannot be read answers ``input_error``."""
    unusable = (msgspec.DecodeError, QuantityError, CaseError)
    return answer_lines(lines, lambda raw: answer_cel(_DECODER.decode(raw)), unusable)
