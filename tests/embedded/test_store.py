"""The store: revisions, history, snapshots of the past."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.embedded.store import Store

NAMES = st.sampled_from(["a", "b", "c", "d"])
STEPS = st.lists(st.tuples(st.booleans(), NAMES), max_size=30)


def replay(store: Store, steps: list[tuple[bool, str]]) -> dict[int, dict[str, int]]:
    """Performs puts (True) and removals of what is there; revision -> the objects and their revisions as of then."""
    states = {store.revision: {}}
    present: dict[str, int] = {}
    for is_put, name in steps:
        if is_put:
            record = store.put("things", ("ns", name), {"metadata": {"uid": name}})
            present = {**present, name: record.revision}
        elif name in present:
            store.remove("things", ("ns", name))
            present = {key: value for key, value in present.items() if key != name}
        states[store.revision] = present
    return states


@given(STEPS)
def test_every_past_revision_can_be_shown(steps: list[tuple[bool, str]]) -> None:
    """at(revision) is exactly the state after that revision's write, in key order."""
    store = Store()
    for revision, expected in replay(store, steps).items():
        shown = store.table("things").at(revision)
        assert shown is not None
        assert [(record.key[1], record.revision) for record in shown] == sorted(expected.items())


@given(STEPS, st.integers(min_value=0, max_value=30))
def test_a_state_and_the_changes_after_it_give_the_present(steps: list[tuple[bool, str]], cut: int) -> None:
    """A list at any revision plus the watch from there ends in the same objects as a fresh list."""
    store = Store()
    states = replay(store, steps)
    revision = sorted(states)[min(cut, len(states) - 1)]
    table = store.table("things")
    objects = dict(states[revision])
    position = table.position_after(revision)
    assert position is not None
    for change in table.since(position) or []:
        assert change.revision > revision
        if change.deleted:
            del objects[change.key[1]]
        else:
            objects[change.key[1]] = change.after.revision
    assert objects == {record.key[1]: record.revision for record in table.ordered()}


@given(STEPS)
def test_history_is_bounded_and_says_so(steps: list[tuple[bool, str]]) -> None:
    """At most twice the limit is kept; what is older is refused, never shown wrongly."""
    store = Store(history=3)
    states = replay(store, steps)
    table = store.table("things")
    assert len(table.changes) < 6
    for revision, expected in states.items():
        shown = table.at(revision)
        assert (shown is None) == (revision < table.compacted)
        if shown is not None:
            assert {record.key[1]: record.revision for record in shown} == expected


def test_records_encode_once() -> None:
    """The JSON of a record is made once and shared."""
    store = Store()
    record = store.put("things", ("", "a"), {"metadata": {"uid": "u"}, "data": {"x": 1}})
    assert record.json() is record.json()
    assert record.json() == b'{"metadata":{"uid":"u","resourceVersion":"2"},"data":{"x":1}}'
