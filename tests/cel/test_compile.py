"""What is refused before it runs: syntax, types, constants, limits."""

from __future__ import annotations

import pytest

from scheduler.cel import CelDevice, CompileError, compile_derived, compile_selector
from scheduler.cel.grammar import extended_grammar, parse


def _refused(expression: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        compile_selector(expression)
    return caught.value


@pytest.mark.parametrize(
    "expression",
    ["'\\q' == 'q'", "b\"\\37'\" == b''", "a.in", "device.true", "a ? b ? c : d : e", "0X1F == 31",
     "for == 1", "[1,,] == []", "", "1 +",
     "'a\nb' == 'c'", "f(1,) == 1", "9223372036854775808 == 1", "-(9223372036854775808) == 1", "1.foo", "a.",
     "[?]",
     "18446744073709551616u == 1u", "`a` == 1", "device.driver == \"x'"],
)  # fmt: skip
def test_syntax_errors(expression: str) -> None:
    """Text outside the language is refused with a position."""
    error = _refused(expression)
    assert error.line >= 1
    assert error.column >= 1


@pytest.mark.parametrize(
    "expression",
    ["[1,] == [1]", "[,] == []", "{,} == {}", "{'a': 1,} == {'a': 1}", "-9223372036854775808 < 0",
     "{'in': 1}.`in` == 1", "{'for': 1}.for == 1", "r'\\d' == '\\\\d'", '"""a\nb""".size() == 3',
     "b'\\xff' == b'\\377'", "!!true", "--1 == 1",
     ".5 == 0.5", "1e3 == 1000.0", "0x1F == 31", "true // comment", "'\\u00e9' == 'é'"],
)  # fmt: skip
def test_syntax_beyond_the_parsers_own(expression: str) -> None:
    """Kubernetes' syntax that cel-python alone does not read."""
    empty = CelDevice("d", {}, {})
    assert compile_selector(expression).evaluate(empty)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("device.foo == 1", "undefined field 'foo'"),
        ("nosuch == 1 || true", "undeclared reference to 'nosuch'"),
        ("nosuch(1)", "undeclared reference to 'nosuch'"),
        ("1 == 1.0", "found no matching overload for '_==_' applied to '(int, double)'"),
        ("1 && true", "expected type 'bool' but found 'int'"),
        ("[1, 'a'].size() == 2", "expected type 'int' but found 'string'"),
        ("[1, dyn(2)].size() == 2", "expected type 'int' but found 'dyn'"),
        ("{'a': 1, 'b': 'c'}.size() == 2", "expected type 'int' but found 'string'"),
        ("quantity('1').sign() == 1", "found no matching overload for 'sign'"),
        ("[1].existsOne(x, true)", "undeclared reference"),
        ("'abc'.reverse() == 'cba'", "found no matching overload for 'reverse'"),
        ("math.greatest(1, 2) == 2", "undeclared reference"),
        ("true || int('x') == 1", "type conversion error from 'string' to 'int'"),
        ("'a'.matches('(')", "invalid matches argument"),
        ("'a'.find('(') == ''", "missing closing )"),
        ("duration('x') == duration('1s')", "invalid duration argument"),
        ("timestamp('x') == timestamp(0)", "invalid timestamp argument"),
        ("'%d'.format(['a']) == ''", "decimal clause can only be used on integers, was given string"),
        ("'%s'.format([1, 2]) == ''", "too many arguments supplied to string.format (expected 1, got 2)"),
        ("has(device)", "invalid argument to has() macro"),
        ("[1].all(x.y, true)", "argument must be a simple name"),
        ("device.driver.all(x, true)", "cannot be range of a comprehension"),
        ("device.driver.x == 1", "does not support field selection"),
        ("type(device) == kubernetes.DRADevice", "undeclared reference"),
    ],
)
def test_typing_and_constant_errors(expression: str, message: str) -> None:
    """What cannot work on any device is refused, with words that name the reason."""
    assert message in _refused(expression).message


def test_text_is_limited() -> None:
    """10 KiB is the API's limit for an expression."""
    assert "longer than 10240 bytes" in _refused("'" + "x" * 10240 + "' == 'y'").message


@pytest.mark.parametrize(
    "expression",
    ["(" * 251 + "true" + ")" * 251, "[" * 251 + "]" * 251 + " == []", "1" + " + 1" * 300 + " == 301",
     "device" + ".a" * 300 + " == 1", "!" * 9000 + "(" * 300 + "true" + ")" * 300],
)  # fmt: skip
def test_nesting_is_limited(expression: str) -> None:
    """250 levels are enough for anybody."""
    assert "recursion limit" in _refused(expression).message


def test_deep_but_legal_expressions_work() -> None:
    """240 parentheses, 200 additions and 1,000 conjunctions are fine, and need no deep stack."""
    empty = CelDevice("d", {}, {})
    assert compile_selector("(" * 240 + "true" + ")" * 240).evaluate(empty)
    assert compile_selector("1" + " + 1" * 200 + " == 201").evaluate(empty)
    assert compile_selector(" && ".join(["true"] * 1000)).evaluate(empty)
    assert not compile_selector(" || ".join(["1 > 2"] * 900)).evaluate(empty)


def test_macros_that_copy_cannot_blow_up() -> None:
    """optMap doubles its operand; a chain of them is refused before it needs memory without end."""
    expression = "optional.of(1)" + ".optMap(x, x)" * 60 + ".hasValue()"
    assert "expands to more than" in _refused(expression).message


def test_large_literals_are_cheap() -> None:
    """A list of thousands of numbers compiles and costs nothing to look into."""
    members = ",".join(map(str, range(2000)))
    selector = compile_selector(f"1999 in [{members}]")
    assert selector.evaluate_with_cost(CelDevice("d", {}, {})) == (True, 0)


def test_own_parser_leaves_cel_python_alone() -> None:
    """The extended grammar lives in our parser only."""
    from celpy.celparser import CELParser

    before = CELParser.CEL_PARSER
    parse("a.?b")
    assert CELParser.CEL_PARSER is before
    assert "OPTIONAL" in extended_grammar()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("device.attributes['gpu.example.com'].n", ("int", 4)),
        ("device.attributes['gpu.example.com'].model + '-x'", ("string", "H100-x")),
        ("device.attributes['gpu.example.com'].ok", ("bool", True)),
        ("semver('1.2.3-rc.1')", ("version", "1.2.3-rc.1")),
        ("device.attributes['gpu.example.com'].vers", ("versions", ["1.0.0", "2.0.0"])),
        ("[1, 2].map(x, x * 2)", ("ints", [2, 4])),
        ("[device.driver]", ("strings", ["gpu.example.com"])),
        ("[].map(x, 1)", ("strings", [])),
    ],
)
def test_derived_attributes(device: CelDevice, expression: str, value: object) -> None:
    """A derived attribute computes a scalar or a list of one kind."""
    assert compile_derived(expression).evaluate(device) == value


@pytest.mark.parametrize("expression", ["1.5", "{'a': 1}", "quantity('1')", "[1.5]", "null"])
def test_derived_attributes_have_few_types(expression: str) -> None:
    """Other result types are refused when compiled."""
    with pytest.raises(CompileError, match="must evaluate to a primitive scalar"):
        compile_derived(expression)
