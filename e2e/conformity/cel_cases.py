"""Random (expression, device) pairs over all libraries of a 1.37 device selector: same seed, same cases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import cycle

from e2e.conformity.cel_templates import CORNERS, ELEMENTS, TEMPLATES, TESTS, VALUES
from e2e.conformity.coverage import CALL
from e2e.conformity.draw import Draw, Json

_PLACE = re.compile(r"\{([A-Za-z]+(?:<[A-Za-z<>]+>)?)\}")
# Types that have values of their own kind; ``any`` stands for one of them.
_ANY = ("int", "string", "double", "bool", "uint", "bytes", "list<int>", "map<int>", "quantity", "semver", "timestamp")
_DEPTH_MAX = 2
CORNER_EVERY = 6


def cel_cases(seed: int, count: int) -> Iterator[Json]:
    """``count`` cases; templates come in turn, so that each is used equally often."""
    draw = Draw(seed)
    templates = [(kind, template) for kind, group in TEMPLATES.items() for template in group]
    draw.shuffle(templates)
    turns = cycle(templates)
    corners = cycle(CORNERS)
    for number in range(count):
        if number % CORNER_EVERY == 0:
            expression = next(corners)
        else:
            expression = _truth(draw, *next(turns))
            if draw.chance(60):
                other = _truth(draw, *next(turns))
                expression = draw.of(
                    f"{expression} && {other}",
                    f"{other} || {expression}",
                    f"({other}) == ({expression})",
                    f"({other}) ? ({expression}) : !({other})",
                )
        yield {"name": f"cel-{seed}-{number}", "expression": expression, "device": _device(draw)}


def cel_functions() -> frozenset[str]:
    """The functions and macros that templates call."""
    texts = (text for group in (TEMPLATES, TESTS) for templates in group.values() for text in templates)
    found = {match.group(1) for text in texts for match in CALL.finditer(text)}
    return frozenset(found | set(VALUES["formatFunction"]))


def _truth(draw: Draw, kind: str, template: str) -> str:
    """A boolean expression around one template."""
    inner = _fill(draw, template, 0)
    test = draw.choice(TESTS[kind])
    # Conditional and logical operators bind weaker than what a test may put around them.
    needs = kind == "bool" or re.search(r"[-+*/%?&|<>=!]| in ", inner) is None
    expression = _fill(draw, test, 1).replace("X", inner if needs else f"({inner})")
    return f"!({expression})" if draw.chance(8) else expression


def _fill(draw: Draw, template: str, depth: int) -> str:
    """A template with expressions put in; ``T`` is the same type throughout."""
    element = draw.choice(ELEMENTS)

    def put(match: re.Match[str]) -> str:
        kind = match.group(1)
        kind = element if kind == "T" else kind.replace("<T>", f"<{element}>")
        if kind == "optional<T>" or (kind.startswith("optional<") and kind not in VALUES):
            kind = "optional<int>"
        return _argument(draw, kind, depth + 1)

    return _PLACE.sub(put, template)


def _argument(draw: Draw, kind: str, depth: int) -> str:
    """An expression of ``kind``, now and then hidden behind dyn() or of another kind."""
    if kind == "any":
        kind = draw.choice(_ANY)
    elif kind in _ANY:
        if draw.chance(3):
            return f"dyn({_expression(draw, draw.choice(_ANY), depth)})"
        if draw.chance(1):
            return _expression(draw, draw.choice(_ANY), depth)
    return _expression(draw, kind, depth)


def _expression(draw: Draw, kind: str, depth: int) -> str:
    if depth <= _DEPTH_MAX and kind in TEMPLATES and draw.chance(30):
        return f"({_fill(draw, draw.choice(TEMPLATES[kind]), depth)})"
    value = draw.choice(VALUES[kind])
    if draw.chance(60) and "device." in value:
        value = draw.choice(VALUES[kind])
    return _fill(draw, value, depth) if "{" in value else value


def _device(draw: Draw) -> Json:
    attributes: Json = {}
    if draw.chance(90):
        attributes["model"] = {"string": draw.of("A100", "hello world", "a", "", "1.2.3")}
    if draw.chance(85):
        attributes["numa"] = {"int": draw.of(0, 1, 2, -1, 9223372036854775807)}
    if draw.chance(85):
        attributes["ok"] = {"bool": draw.chance(60)}
    if draw.chance(85):
        attributes["a.example.com/version"] = {"version": draw.of("1.2.3", "1.0.0", "2.0.0-rc.1", "1.2.3+b5")}
    if draw.chance(60):
        attributes["c.example.com/root"] = draw.of({"string": "pci0"}, {"int": 4}, {"bool": False})
    if draw.chance(50):
        attributes["ids"] = draw.of(
            {"ints": [1, 2, 3]}, {"strings": ["a", "b"]}, {"ints": [3, 1]}, {"versions": ["1.0.0"]}
        )
    device: Json = {"driver": "a.example.com", "attributes": attributes}
    if draw.chance(85):
        device["capacity"] = {"mem": {"value": draw.of("4Gi", "1", "1500m", "0", "100Ti", "1.5Gi")}}
        if draw.chance(30):
            device["capacity"]["numa"] = {"value": "2"}
    if draw.chance(50):
        device["allowMultipleAllocations"] = draw.chance(50)
    return device
