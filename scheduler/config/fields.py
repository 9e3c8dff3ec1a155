"""Reading one decoded mapping field by field, with the path of each field at hand for messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from scheduler.config.document import kind_name
from scheduler.config.durations import NANOSECONDS_PER_SECOND, DurationError, parse_duration
from scheduler.errors import ConfigError

_INT32 = 2**31


class Fields:
    """The fields of one object. Each is taken once; ``finish`` refuses what nobody took.

    null counts as absent, as in Go's JSON decoding. Wrong types raise ConfigError with the path.
    """

    def __init__(self, data: object, path: str) -> None:
        if not isinstance(data, Mapping):
            raise ConfigError(path, f"expected an object, got {kind_name(data)}")
        self.path = path
        self._data: dict[str, Any] = dict(data)
        self._known: list[str] = []

    def at(self, name: str) -> str:
        """The path of field ``name``."""
        return f"{self.path}.{name}" if self.path else name

    def raw(self, name: str) -> Any:
        """The value as it is, None when absent."""
        self._known.append(name)
        return self._data.pop(name, None)

    def text(self, name: str, default: str = "") -> str:
        """A string."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise ConfigError(self.at(name), f"expected a string, got {kind_name(value)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """A boolean."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ConfigError(self.at(name), f"expected a boolean, got {kind_name(value)}")
        return value

    def whole(self, name: str, default: int) -> int:
        """A 32-bit integer."""
        value = self.optional_whole(name)
        return default if value is None else value

    def optional_whole(self, name: str) -> int | None:
        """A 32-bit integer, None when absent."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(self.at(name), f"expected an integer, got {kind_name(value)}")
        if not -_INT32 <= value < _INT32:
            raise ConfigError(self.at(name), f"{value} does not fit into 32 bits")
        return value

    def optional_number(self, name: str) -> float | None:
        """A number, None when absent."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(self.at(name), f"expected a number, got {kind_name(value)}")
        return float(value)

    def duration_s(self, name: str, default: float) -> float:
        """A Go duration (``1m30s``), in seconds."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise ConfigError(self.at(name), f"expected a duration such as 10s, got {kind_name(value)}")
        try:
            return parse_duration(value) / NANOSECONDS_PER_SECOND
        except DurationError as error:
            raise ConfigError(self.at(name), str(error)) from error

    def items(self, name: str) -> list[tuple[str, Any]]:
        """(path, value) of each element of an array, in order; empty when absent."""
        value = self.raw(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise ConfigError(self.at(name), f"expected an array, got {kind_name(value)}")
        return [(f"{self.at(name)}[{index}]", item) for index, item in enumerate(value)]

    def objects(self, name: str) -> Iterator[Fields]:
        """Each element of an array of objects."""
        for path, item in self.items(name):
            yield Fields(item, path)

    def strings(self, name: str) -> list[str]:
        """An array of strings."""
        values = self.items(name)
        for path, item in values:
            if not isinstance(item, str):
                raise ConfigError(path, f"expected a string, got {kind_name(item)}")
        return [item for _, item in values]

    def child(self, name: str) -> Fields:
        """A nested object, empty when absent."""
        value = self.raw(name)
        return Fields({} if value is None else value, self.at(name))

    def has(self, name: str) -> bool:
        """True when the field was written (and is not null) and has not been taken yet."""
        return self._data.get(name) is not None

    def finish(self) -> None:
        """Raise ConfigError for the first field that nobody took."""
        for name in self._data:
            near = difflib.get_close_matches(name, self._known, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise ConfigError(self.at(name), f"unknown field{hint}")
