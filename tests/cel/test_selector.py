"""Selectors: errors with position and guard, cost and deadline, conversion errors, sharing."""

from __future__ import annotations

import pytest

from scheduler.cel import CelDevice, CompileError, EvaluationError, compile_selector
from scheduler.cel.errors import KEY_HINT

GPU = 'device.attributes["gpu.example.com"]'


def _fails(expression: str, device: CelDevice) -> EvaluationError:
    with pytest.raises(EvaluationError) as caught:
        compile_selector(expression).evaluate(device)
    return caught.value


def test_missing_attribute_names_key_place_and_guard(device: CelDevice) -> None:
    """The text is upstream's; where it happened, what upstream adds and how to avoid it stand beside it."""
    error = _fails(f'device.driver == "x" ||\n  {GPU}.zz == 1', device)
    assert (error.message, error.kind) == ("no such key: zz", "runtime")
    assert (error.line, error.column) == (2, 3)
    assert error.guard == 'has(device.attributes["gpu.example.com"].zz)'
    assert error.hint == KEY_HINT


def test_guard_of_an_index_is_a_membership_test(device: CelDevice) -> None:
    """Where a field test is not possible, the guard asks for the key."""
    assert _fails(f'{GPU}["zz"] == 1', device).guard == f'"zz" in {GPU}'
    assert _fails("[1][3] == 1", device).guard == ""


def test_other_errors_have_no_hint(device: CelDevice) -> None:
    """Upstream explains only missing keys."""
    error = _fails("1 / (device.driver.size() - 15) == 1", device)
    assert (error.message, error.hint) == ("division by zero", "")
    assert (error.line, error.column) == (1, 1)


def test_unknown_domain_reads_as_an_empty_map(device: CelDevice) -> None:
    """A domain nobody uses is there when indexed, and not there when asked for."""
    assert compile_selector("has(device.attributes.nosuch)").evaluate(device)
    assert compile_selector('device.attributes[?"nosuch"].hasValue()').evaluate(device)
    assert not compile_selector('"nosuch" in device.attributes').evaluate(device)
    assert not compile_selector("has(device.attributes.nosuch.id)").evaluate(device)


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        (("version", "1.2"), "attribute a: parse semantic version: No Major.Minor.Patch elements found"),
        (("versions", ["1.0.0", "x"]), "attribute a: parse semantic version: No Major.Minor.Patch elements found"),
        (("unknown", None), "attribute a: unsupported attribute value"),
    ],
)
def test_one_malformed_attribute_fails_every_expression(attribute: object, message: str) -> None:
    """Even an expression that reads nothing fails on a device with an attribute that cannot be converted."""
    broken = CelDevice("d", {"a": attribute, "b": ("int", 1)}, {})  # type: ignore[dict-item]  # parametrised
    assert _fails("true", broken).message == message
    assert _fails("device.driver == 'd'", broken).message == message


def test_cost_limit_stops_a_loop_and_is_not_absorbed(device: CelDevice) -> None:
    """Beyond 1,000,000 units the evaluation ends, whatever stands beside it."""
    hundred = "[" + ",".join(map(str, range(100))) + "]"
    loop = f"cel.bind(a, {hundred}, a.all(x, a.all(y, a.all(z, x + y + z >= 0))))"
    error = _fails(f"{loop} || true", device)
    assert (error.message, error.kind) == ("operation cancelled: actual cost limit exceeded", "cost")


def test_string_doubling_is_stopped_before_memory_is_gone(device: CelDevice) -> None:
    """Each doubling is charged by what it makes, before it is made."""
    expression = "s40.size() > 0"
    for level in range(40, 0, -1):
        expression = f"cel.bind(s{level}, s{level - 1} + s{level - 1}, {expression})"
    assert _fails(f"cel.bind(s0, 'xxxxxxxxxx', {expression})", device).kind == "cost"


def test_replace_and_join_cannot_explode(device: CelDevice) -> None:
    """A result that could never be read within the budget is not made."""
    grow = "cel.bind(a, device.driver + device.driver, cel.bind(b, a.replace('', a), cel.bind(c, b.replace('', b), "
    assert _fails(grow + "c.replace('', c).size() > 0)))", device).kind == "cost"


@pytest.mark.parametrize(
    ("step", "use"),
    [
        ("a{0} + a{0}", "a40.size() > 0"),
        ("[a{0}, a{0}]", "a40 == a40 + []"),
        ("[a{0}, a{0}]", "a40 in [a40 + []]"),
        ("[a{0}, a{0}]", "a40.flatten(100) == []"),
        ("[a{0}, a{0}]", "dyn(a40).isSorted()"),
        ("[a{0}, a{0}]", "'%s'.format([a40]) == ''"),
        ("[a{0}, a{0}].flatten()", "a40.size() > 0"),
        ("{{'k': [a{0}, a{0}]}}", "a40 == {'k': a40.k}"),
    ],
)
def test_work_upstreams_cost_does_not_see_is_bounded(device: CelDevice, step: str, use: str) -> None:
    """Values that hold themselves twice, forty times over, are cheap to build; using them ends like the cost limit."""
    expression = use
    for level in range(40, 0, -1):
        expression = f"cel.bind(a{level}, dyn({step.format(level - 1)}), {expression})"
    assert _fails(f"cel.bind(a0, dyn([1]), {expression})", device).kind == "cost"


def test_format_cannot_explode(device: CelDevice) -> None:
    """Formatting a string into itself doubles it for the price of the template."""
    expression = "s40.size() > 0"
    for level in range(40, 0, -1):
        expression = f"cel.bind(s{level}, '%s%s'.format([s{level - 1}, s{level - 1}]), {expression})"
    assert _fails(f"cel.bind(s0, 'x', {expression})", device).kind == "cost"


def test_deadline_is_asked_every_hundred_steps(device: CelDevice) -> None:
    """The caller's check ends a loop with upstream's text."""
    asked: list[int] = []

    def interrupted() -> bool:
        asked.append(1)
        return len(asked) == 3

    selector = compile_selector("lists.range(1000).all(x, x >= 0) || true")
    with pytest.raises(EvaluationError, match="operation interrupted"):
        selector.evaluate(device, interrupted)
    assert len(asked) == 3
    assert selector.evaluate(device)


def test_result_must_be_bool(device: CelDevice) -> None:
    """A dyn result that is no bool fails on the device, a typed one already when compiled."""
    assert _fails(f"{GPU}.n", device).message == (
        "CEL result of type int could not be converted to bool: unsupported type conversion from 'int' to bool"
    )
    assert compile_selector(f"{GPU}.ok").evaluate(device)
    with pytest.raises(CompileError, match="must evaluate to bool or the unknown type, not int"):
        compile_selector("1")


def test_equal_expressions_share_one_selector() -> None:
    """Compiling again is a look-up."""
    assert compile_selector("device.driver == 'a'") is compile_selector("device.driver == 'a'")


def test_evaluations_do_not_disturb_each_other(device: CelDevice) -> None:
    """Constants and lists survive a macro that fills a list: the same answer every time."""
    selector = compile_selector(
        "cel.bind(l, [3, 1, 2], l.map(x, x + 1) == [4, 2, 3] && l + [9] == [3, 1, 2, 9])"
        f" && {GPU}.ints.sort() == [1, 2, 3]"
    )
    assert [selector.evaluate_with_cost(device) for _ in range(3)] == [selector.evaluate_with_cost(device)] * 3


def test_half_characters_are_what_go_makes_of_them(device: CelDevice) -> None:
    """A file may contain them where the API server's JSON cannot: U+FFFD in a text, an error in a pattern."""
    with pytest.raises(CompileError, match="invalid matches argument"):
        compile_selector('"a".matches("\ud8c0")')
    half = '"\ud8c0x"'
    found = compile_selector(f'{half}.find("x$") == "x" && {half}.matches("^.x") && {half}.findAll(".").size() == 2')
    assert found.evaluate(device) is True
