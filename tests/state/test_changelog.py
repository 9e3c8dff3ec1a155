"""ChangeLog: who asks from a kept position gets every change since, in order; who asks from before gets None."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.state.changelog import KEPT_MAX, ChangeLog

Noted = list[tuple[bool, int]]
CHANGES = st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=60)


def note(log: ChangeLog, of_node: bool, row: int) -> None:
    (log.note_node if of_node else log.note_pods)(row)


@given(CHANGES, CHANGES)
def test_every_change_since_a_position_is_told_in_order(
    before: list[tuple[bool, int]], after: list[tuple[bool, int]]
) -> None:
    log = ChangeLog()
    for change in before:
        note(log, *change)
    position = log.end
    for change in after:
        note(log, *change)
    assert log.since(position) == [~row if of_node else row for of_node, row in after]
    assert log.end == position + len(after)


def test_what_is_not_kept_any_more_is_said_so() -> None:
    log = ChangeLog()
    position = log.end
    for row in range(3 * KEPT_MAX):
        log.note_pods(row)
    assert log.since(position) is None
    assert log.end == 3 * KEPT_MAX
    assert log.since(log.end - 2) == [3 * KEPT_MAX - 2, 3 * KEPT_MAX - 1]
    assert log.since(log.end) == []
