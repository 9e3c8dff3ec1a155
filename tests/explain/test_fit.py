"""The fit error's text and the event's note."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.explain.fit import NO_NODES_MESSAGE, NOTE_BYTES_MAX, event_note, fit_message
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.status import unresolvable, unschedulable


def test_histogram_with_preemption_text() -> None:
    """Reasons with their counts, sorted, then PostFilter's message as it is."""
    reasons = {"Insufficient cpu": 2, "node(s) had untolerated taint(s)": 1}
    postfilter = (
        "preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, "
        "2 No preemption victims found for incoming pod."
    )
    assert fit_message(3, reasons, "", postfilter) == (
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. "
        "preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, "
        "2 No preemption victims found for incoming pod."
    )


def test_entries_sort_as_texts() -> None:
    """``10`` comes before ``2``, and equal counts are ordered by reason."""
    reasons = {"b": 2, "x": 10, "a": 2, "Insufficient cpu": 1}
    assert fit_message(20, reasons) == "0/20 nodes are available: 1 Insufficient cpu, 10 x, 2 a, 2 b."


@pytest.mark.parametrize(
    ("reasons", "prefilter", "postfilter", "expected"),
    [
        ({"cannot allocate all claims": 20}, "", "", "0/20 nodes are available: 20 cannot allocate all claims."),
        ({"ignored": 20}, "claim gone", "", "0/20 nodes are available: claim gone."),
        ({}, "claim gone", "still", "0/20 nodes are available: claim gone. still"),
        ({}, "", "", "0/20 nodes are available:"),
        ({}, "", "preemption: none", "0/20 nodes are available: preemption: none"),
        ({"100% of x used": 1}, "", "", "0/20 nodes are available: 1 100% of x used."),
    ],
)
def test_parts(reasons: dict[str, int], prefilter: str, postfilter: str, expected: str) -> None:
    """A PreFilter message replaces the histogram, empty parts leave no trace, and % is an ordinary character."""
    assert fit_message(20, reasons, prefilter, postfilter) == expected


def test_message_of_a_diagnosis() -> None:
    """Nodes rejected for several reasons count under each; nodes never examined count under the absent status."""
    diagnosis = Diagnosis(node_count=4, absent=unresolvable("node(s) didn't match"))
    diagnosis.add(unschedulable("Insufficient cpu", "Insufficient memory").by("NodeResourcesFit"), ("n1", "n2"))
    diagnosis.add(unschedulable("Insufficient cpu").by("NodeResourcesFit"), ("n3",))
    assert fit_message(diagnosis.node_count, diagnosis.reasons()) == (
        "0/4 nodes are available: 1 node(s) didn't match, 2 Insufficient memory, 3 Insufficient cpu."
    )


def test_empty_cluster() -> None:
    """Without nodes there is no histogram but a sentence of its own."""
    assert NO_NODES_MESSAGE == "no nodes available to schedule pods"


def test_note_is_cut_at_1024_bytes() -> None:
    """1024 bytes pass untouched; one more is cut to 1020 and marked."""
    assert event_note("x" * 1024) == "x" * 1024
    assert event_note("x" * 1025) == "x" * 1020 + " ..."


def test_note_is_cut_on_a_character_border() -> None:
    """A character of several bytes that straddles the cut is left out whole."""
    assert event_note("x" * 1019 + "é" * 10) == "x" * 1019 + " ..."
    assert event_note("x" * 1018 + "é" * 10) == "x" * 1018 + "é ..."


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.integers(8, 60))
def test_note_never_exceeds_its_limit(text: str, limit_bytes: int) -> None:
    """Any text comes back whole, or as a marked prefix that fills the limit but for less than a character."""
    note = event_note(text, limit_bytes)
    size = len(note.encode())
    assert size <= limit_bytes <= NOTE_BYTES_MAX
    if note != text:
        assert note.endswith(" ...")
        assert text.startswith(note.removesuffix(" ..."))
        assert size > limit_bytes - 4
