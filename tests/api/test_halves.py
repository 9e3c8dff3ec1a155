"""Halves of characters in JSON: an object with them is read, and what is passed on has them still."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api.deep import plain
from scheduler.api.halves import Halves
from scheduler.api.kinds import RESOURCE_CLAIM, DecodeError, decode

PIECES = st.sampled_from(
    (
        "\\ud800",
        "\\uDC00",
        "\\ud83d\\ude00",
        "\\\\",
        '\\"',
        "ud800",
        "\\\\ud800",
        "a",
        "\\ue000",
        "\\uF7ff",
        "\\n",
        "\ue001",
    )
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@given(TEXTS)
def test_a_text_without_halves_has_the_same_length_and_is_readable_and_can_be_written_back(text: str) -> None:
    """Whatever backslashes stand before them; whole pairs, and characters for private use, stay what they are."""
    raw = b'{"a":"' + text.encode() + b'"}'
    halves = Halves(raw)
    assert len(halves.text) == len(raw)
    read = msgspec.json.decode(halves.text)["a"]
    both = "\\ue000" in text and "\\uF7ff" in text
    if not both:
        assert json.loads(halves.whole(halves.text)) == json.loads(raw)
    assert len(read) == len(json.loads(raw)["a"])
    if not re.search("(?i)ud[89a-f]", text):
        assert halves.text == raw


PARAMETERS = b'{"a":"x\\ud800y\\udc00","b":"\\ud83d\\ude00","c":null}'


@pytest.mark.parametrize("nulls", [b"", b',"labels":null'], ids=("", "beside a null"))
@pytest.mark.parametrize("deep", [b"1", b"[" * 3000 + b"]" * 3000], ids=("flat", "deep"))
def test_a_claim_with_halves_in_its_parameters_is_read(nulls: bytes, deep: bytes) -> None:
    """The API server stores them as they came; left out, its devices would look free, and no list could be read."""
    parameters = PARAMETERS[:-1] + b',"d":' + deep + b"}"
    config = b'[{"opaque":{"driver":"d","parameters":' + parameters + b"}}]"
    devices = b'{"results":[{"request":"r","driver":"d","pool":"p","device":"x"}],"config":' + config + b"}"
    head = b'{"metadata":{"name":"c"' + nulls + b'},"spec":{"devices":{"config":' + config + b"}}"
    raw = head + b',"status":{"allocation":{"devices":' + devices + b"}}}"
    claim = decode(RESOURCE_CLAIM, raw)
    assert bytes(claim.spec.devices.config[0].opaque.parameters) == parameters
    assert bytes(claim.status.allocation.devices.config[0].opaque.parameters) == parameters
    assert claim.status.allocation.devices.results[0].device == "x"


def test_a_text_that_is_read_has_what_go_reads() -> None:
    """U+FFFD in place of each half."""
    assert decode(RESOURCE_CLAIM, b'{"metadata":{"name":"a\\ud800b"}}').metadata.name == "a\ufffdb"


def test_plain_data_with_halves_is_read_and_can_be_written() -> None:
    """For commands, and for the guard's reviews."""
    data = plain(b'{"spec":' + PARAMETERS + b"}")
    assert data["spec"]["b"] == "\U0001f600"
    assert msgspec.json.encode(data)


@pytest.mark.parametrize("raw", [b'{"a":"\\ud800', b'{"a":"\\ud8', b'{"metadata":{"name":"\\udz00"}}'])
def test_broken_json_stays_broken(raw: bytes) -> None:
    """And is told as ever."""
    with pytest.raises(DecodeError, match="unreadable"):
        decode(RESOURCE_CLAIM, raw)
