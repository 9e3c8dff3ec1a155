"""What an expression reads, known without running it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api.quantity import parse_quantity
from scheduler.cel import CelDevice, EvaluationError, Reads, Selector, compile_selector


def _reads(expression: str) -> Reads:
    return compile_selector(expression).reads


def test_constant_paths_are_read_by_name() -> None:
    """An attribute named by constants is one read, however it is written."""
    for path in ("attributes['d'].a", "attributes.d.a", "attributes['d']['a']", "attributes.?d.?a.orValue(1)"):
        reads = _reads(f"device.{path} == 1")
        assert reads.qualified_attributes() == {"d/a"}
        assert not reads.everything
        assert not reads.attribute_domains


def test_capacity_driver_and_sharing_are_separate() -> None:
    """Each part of the device counts only where it is read."""
    reads = _reads("device.driver == 'x' && device.capacity['d'].m.isInteger() || device.allowMultipleAllocations")
    assert reads.driver
    assert reads.allow_multiple
    assert reads.qualified_capacity() == {"d/m"}
    assert not reads.attributes
    assert not reads.everything


def test_presence_tests_read_what_they_test() -> None:
    """has() and `in` read the key they ask for."""
    assert _reads("has(device.attributes['d'].a)").qualified_attributes() == {"d/a"}
    assert _reads("'a' in device.attributes['d']").qualified_attributes() == {"d/a"}
    assert _reads("'d' in device.attributes").attribute_domains == {"d"}


@pytest.mark.parametrize(
    "expression",
    ["device.attributes.size() == 1", "device.attributes.exists(d, d == 'x')",
     "device.attributes[device.driver].a == 1", "dyn(device).size() == 4", "device == device",
     "cel.bind(d, device, d.driver == 'x')",
     "cel.bind(a, device.attributes, a['x'].y == 1)"],
)  # fmt: skip
def test_computed_access_reads_everything(expression: str) -> None:
    """Iteration, size, comparison, aliases and computed domains make the whole device count."""
    assert _reads(expression).everything


def test_macro_variables_hide_the_device() -> None:
    """A variable called device is not the device; with a leading dot it is again."""
    assert not _reads("[1].all(device, device > 0)").everything
    assert _reads("[1].all(device, .device.driver == 'x')").driver


def test_whole_domain_counts_where_it_is_used_as_a_map() -> None:
    """Iterating over one domain reads that domain only."""
    reads = _reads("device.attributes['d'].exists(k, k == 'a')")
    assert reads.attribute_domains == {"d"}
    assert not reads.everything


def test_conversion_error_is_the_key() -> None:
    """A device that fails every expression shares answers with devices that fail alike."""
    selector = compile_selector("device.driver == 'x'")
    first = CelDevice("x", {"a": ("version", "1")}, {})
    second = CelDevice("y", {"a": ("version", "2")}, {})
    assert selector.read_key(first) == selector.read_key(second)
    assert selector.read_key(first) != selector.read_key(CelDevice("x", {}, {}))


_VALUES = st.one_of(
    st.tuples(st.just("int"), st.sampled_from([0, 1, 2])),
    st.tuples(st.just("bool"), st.booleans()),
    st.tuples(st.just("string"), st.sampled_from(["", "1", "true", "x"])),
    st.tuples(st.just("version"), st.sampled_from(["1.0.0", "1.0.0+b", "2.0.0", "bad"])),
    st.tuples(st.just("ints"), st.lists(st.sampled_from([0, 1]), max_size=2)),
    st.tuples(st.just("strings"), st.lists(st.sampled_from(["0", "1"]), max_size=2)),
)
_DEVICES = st.builds(
    CelDevice,
    st.sampled_from(["d", "e"]),
    st.dictionaries(st.sampled_from(["a", "b", "d/a", "e/a", "e/c"]), _VALUES, max_size=3),
    st.dictionaries(
        st.sampled_from(["a", "d/m"]), st.sampled_from(["1", "1000m", "1Ki", "1024"]).map(parse_quantity), max_size=2
    ),
    st.booleans(),
)
_EXPRESSIONS = [
    "device.attributes['d'].a == 1",
    "device.attributes['d'].a == dyn(true)",
    "device.attributes['d'].a in [dyn(1), dyn(true)]",
    "has(device.attributes['e'].c) || device.driver == 'e'",
    "'c' in device.attributes['e']",
    "'e' in device.attributes",
    "device.attributes['e'].exists(k, v, v == 1)",
    "device.attributes.size() == 1",
    "device.capacity['d'].m.isInteger()",
    "device.capacity['d'].a == quantity('1')",
    "device.attributes['d'].?a.orValue(device.allowMultipleAllocations) == true",
    "device.attributes[device.driver].a == 1",
    "string(device.attributes['d'].a) == '1'",
    "device.attributes['d'].a.includes(1)",
]


def _outcome(selector: Selector, device: CelDevice) -> object:
    try:
        return selector.evaluate_with_cost(device)
    except EvaluationError as error:
        return error.message


@given(st.sampled_from(_EXPRESSIONS), _DEVICES, _DEVICES)
def test_equal_keys_give_equal_outcomes(expression: str, first: CelDevice, second: CelDevice) -> None:
    """The memo's promise: same key, same answer, cost and error."""
    selector = compile_selector(expression)
    if selector.read_key(first) == selector.read_key(second):
        assert _outcome(selector, first) == _outcome(selector, second)
