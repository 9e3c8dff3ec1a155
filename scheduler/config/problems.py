"""Collected field errors in upstream's form (apimachinery, util/validation/field), raised together."""

from __future__ import annotations

from scheduler.config.durations import go_quote
from scheduler.errors import ConfigError


class Problems:
    """Field errors of one configuration, in the order found."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []

    def invalid(self, path: str, value: object, text: str) -> None:
        """``<path>: Invalid value: <value>: <text>``; strings are quoted unless marked as ``Shown``."""
        self._found.append((path, f"Invalid value: {_shown(value)}: {text}"))

    def required(self, path: str, text: str = "") -> None:
        """``<path>: Required value``."""
        self._found.append((path, f"Required value: {text}" if text else "Required value"))

    def duplicate(self, path: str, value: object) -> None:
        """``<path>: Duplicate value: <value>``."""
        self._found.append((path, f"Duplicate value: {_shown(value)}"))

    def unsupported(self, path: str, value: str, supported: tuple[str, ...]) -> None:
        """``<path>: Unsupported value: <value>: supported values: ...``."""
        names = ", ".join(go_quote(name) for name in supported)
        self._found.append((path, f"Unsupported value: {go_quote(value)}: supported values: {names}"))

    def raise_any(self) -> None:
        """Raise ConfigError when there is something: one error alone, several as ``[a, b]``."""
        distinct = list(dict.fromkeys(self._found))
        if not distinct:
            return
        if len(distinct) == 1:
            raise ConfigError(*distinct[0])
        raise ConfigError("", "[" + ", ".join(f"{path}: {problem}" for path, problem in distinct) + "]")


class Shown(str):
    """A text that is printed as it is: durations, numbers."""

    __slots__ = ()


def _shown(value: object) -> str:
    if isinstance(value, Shown):
        return str(value)
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
