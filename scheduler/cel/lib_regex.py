"""``find`` and ``findAll`` of the Kubernetes regex library, and what runs with a compiled pattern."""

from __future__ import annotations

from typing import Any, Final

from scheduler.cel.errors import CelError, no_such_overload
from scheduler.cel.pattern import PatternError, compile_pattern, whole
from scheduler.cel.registry import Library
from scheduler.cel.values import OptionalValue, TypeValue


def _text(value: Any) -> str:
    """The text a value stands for in Go: a type's name and an optional's content count."""
    while type(value) is OptionalValue and value.present:
        value = value.value
    if type(value) is TypeValue:
        return value.name
    if type(value) is not str:
        raise no_such_overload()
    return whole(value)


def _matches(program: Any, value: Any, _pattern: Any) -> bool:
    return program.search(_text(value)) is not None


def _find(program: Any, value: Any, _pattern: Any) -> str:
    match = program.search(_text(value))
    return "" if match is None else str(match.group(0))


def _find_all(program: Any, value: Any, _pattern: Any, limit: Any = -1) -> list[str]:
    text = _text(value)
    while type(limit) is OptionalValue and limit.present:
        limit = limit.value
    if type(limit) is not int:
        raise no_such_overload()
    found: list[str] = []
    previous_end = -1
    for match in program.finditer(text) if limit else ():
        # Go drops an empty match right after another match.
        if match.end() == match.start() == previous_end:
            continue
        found.append(str(match.group(0)))
        previous_end = match.end()
        if 0 <= limit <= len(found):
            break
    return found


# Run with a compiled pattern in front of the call's own arguments.
COMPILED: Final[dict[str, Any]] = {"matches": _matches, "find": _find, "findAll": _find_all}


def _with_text(run: Any) -> Any:
    def evaluate(text: Any, pattern: Any, *rest: Any) -> Any:
        if type(text) is not str or type(pattern) is not str:
            raise no_such_overload()
        try:
            program = compile_pattern(pattern)
        except PatternError as error:
            raise CelError(f"Illegal regex: {error}") from None
        return run(program, text, pattern, *rest)

    return evaluate


LIBRARY: Final = Library(
    table="""
find     string_find_string          string.(string) string
findAll  string_find_all_string      string.(string) list(string)
findAll  string_find_all_string_int  string.(string, int) list(string)
""",
    implementations={
        "string_find_string": _with_text(_find),
        "string_find_all_string": _with_text(_find_all),
        "string_find_all_string_int": _with_text(_find_all),
    },
)
