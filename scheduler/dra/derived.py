"""Derived attributes: values a request computes from a device, for use in constraints only (alpha).

Source: kube-scheduler 1.37, experimental allocator. Errors are fatal and carry upstream's texts.
"""

from __future__ import annotations

from scheduler.cel import AttributeValue, CompileError, EvaluationError, compile_derived
from scheduler.dra.devices import DeviceInfo
from scheduler.dra.selectors import compile_text


class DerivedError(ValueError):
    """A derived attribute does not compile or fails on a device; the text is upstream's."""


def derived_value(name: str, expression: str, info: DeviceInfo) -> AttributeValue:
    """The value of one derived attribute on a device, remembered per (device, expression). Raises DerivedError."""
    question = ("derived", expression)
    known: AttributeValue | None = info.verdicts.get(question)
    if known is not None:
        return known
    try:
        program = compile_derived(expression)
    except CompileError as error:
        raise DerivedError(f"compile derived attribute {name} failed: {compile_text(error, expression)}") from error
    try:
        value = program.evaluate(info.cel)
    except EvaluationError as error:
        raise DerivedError(f"evaluate derived attribute {name} on device {info.key} failed: {error.message}") from error
    if isinstance(value[1], list):
        value = value[0], tuple(value[1])
    info.remember(question, value)
    return value
