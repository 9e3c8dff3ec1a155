"""JSON nested deeper than the decoder goes: what is read is read, what is passed on is passed on byte for byte."""

from __future__ import annotations

import copy
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.api import deep
from scheduler.api.deep import LEVELS_MAX, Shallow, plain
from scheduler.api.kinds import NODE, RESOURCE_CLAIM, DecodeError, decode, without_nulls

TEXTS = st.sampled_from(("", '"', "\\", '\\"', "]", "[{", "\\\\", 'a\\\\"', "}", "\u0000deep-0-0"))
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=30,
)
NESTED = b"[" * 5000 + b'"]"' + b"]" * 5000


def levels(value: object) -> int:
    """How deep a decoded value goes."""
    if not isinstance(value, dict | list):
        return 0
    return 1 + max((levels(one) for one in (value.values() if isinstance(value, dict) else value)), default=0)


@given(VALUES, st.sampled_from((1, 2, 3, 7, 1000)), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_the_shallow_text_and_its_parts_are_the_text(value: object, block_bytes: int, limit: int) -> None:
    """Whatever quotes, backslashes and brackets there are, and wherever a block ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep, "_BLOCK_BYTES", block_bytes)
        patch.setattr(deep, "LEVELS_MAX", limit)
        raw = json.dumps(value).encode()
        shallow = Shallow(raw)
        assert shallow.whole(shallow.text) == raw
        assert levels(json.loads(shallow.text)) <= limit
        assert (shallow.text == raw) == (levels(value) <= limit)


def test_deep_parameters_of_a_claim_are_passed_on_byte_for_byte() -> None:
    """The API server stores them up to 10,000 levels; an allocation copies them."""
    parameters = b'{"a":' + NESTED + b',"b":"\\u0000deep-0-0","c":' + NESTED + b"}"
    config = b'{"opaque":{"driver":"d","parameters":' + parameters + b"}}"
    raw = b'{"metadata":{"name":"c"},"spec":{"devices":{"config":[' + config + b"]}}}"
    claim = decode(RESOURCE_CLAIM, raw)
    opaque = claim.spec.devices.config[0].opaque
    assert bytes(opaque.parameters) == parameters
    assert parameters in msgspec.json.encode(claim)


def test_a_deep_field_that_nobody_reads_is_skipped() -> None:
    """The node counts."""
    raw = b'{"metadata":{"name":"n"},"unknown":' + NESTED + b',"spec":{"unschedulable":true}}'
    assert decode(NODE, raw).spec.unschedulable


@pytest.mark.parametrize(
    "raw",
    [
        b'{"metadata":{"name":"n","uid":' + NESTED + b"}}",
        b'{"metadata":{"name":"n","labels":{"a":' + NESTED + b"}}}",
        b'{"metadata":{"name":"n"},"spec":' + NESTED + b"}",
        b'{"metadata":{"name":"n","uid":null},"spec":' + NESTED + b"}",
        b"[" * 5000,
        b'{"a":' * 5000 + b"1" + b"}" * 4999,
    ],
)
def test_a_deep_value_where_a_text_is_read_is_an_error_of_the_object(raw: bytes) -> None:
    """Never RecursionError, which would end the watch."""
    with pytest.raises(DecodeError):
        decode(NODE, raw)


@pytest.mark.parametrize("deep_part", [NESTED, b"[[1]]"], ids=("deep", "shallow"))
def test_a_claim_with_fields_that_are_null_keeps_its_parameters_byte_for_byte(deep_part: bytes) -> None:
    """A driver's status without conditions has null there; left out, the claim's devices would look free."""
    parameters = b'{"a": null, "b":1.0,"c":' + deep_part + b',"d":[null,{"e":null}],"f":1e400}'
    config = b'[{"opaque":{"driver":"d","parameters":' + parameters + b',"x":null}}]'
    devices = b'{"results":[{"request":"r","driver":"d","pool":"p","device":"x"}],"config":' + config + b"}"
    status = b'{"allocation":{"devices":' + devices + b'},"devices":[{"driver":"d","conditions":null}]}'
    spec = b'{"devices":{"config":' + config + b"}}"
    raw = b'{"metadata":{"name":"c","labels":null},"spec":' + spec + b',"status":' + status + b"}"
    claim = decode(RESOURCE_CLAIM, raw)
    assert [result.device for result in claim.status.allocation.devices.results] == ["x"]
    assert bytes(claim.spec.devices.config[0].opaque.parameters) == parameters
    assert bytes(claim.status.allocation.devices.config[0].opaque.parameters) == parameters


@pytest.mark.parametrize("depth", [10, LEVELS_MAX + 100, 900, 5000])
def test_plain_data_can_be_walked_by_functions_that_call_themselves(depth: int) -> None:
    """Copied, stripped, written again: what is too deep is a text by then."""
    item = plain(b'{"a":{"b":' + b"[" * depth + b"1" + b"]" * depth + b'},"c":"kept"}')
    assert item["c"] == "kept"
    assert levels(copy.deepcopy(item)) == min(depth + 2, LEVELS_MAX)
    assert without_nulls(item) == item
    assert msgspec.json.encode(item)
