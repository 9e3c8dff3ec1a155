"""What a copy notes is enough to bring another one to the same state."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.edge.copies import Copy, follow, follow_no_more, learn, noted_count, take_news

KEYS = st.sampled_from(["a", "b", "c", "d"])
EDITS = st.lists(st.tuples(st.sampled_from(["X", "Y"]), KEYS, st.integers(0, 2)), max_size=12)


def edit(copies: dict[str, Copy], edits: list[tuple[str, str, int]]) -> None:
    for kind, key, how in edits:
        copy = copies[kind]
        if how == 0:
            copy.pop(key)
        elif how == 1 and key in copy:
            del copy[key]
        else:
            copy[key] = object()


@given(EDITS, st.lists(EDITS, max_size=5))
def test_news_bring_another_copy_to_the_same_state(before: list[tuple[str, str, int]], rounds: list[object]) -> None:
    """After any edits, told in any portions; each change is told once."""
    copies = {"X": Copy(), "Y": Copy()}
    edit(copies, before)
    others = {kind: Copy(copy) for kind, copy in copies.items()}
    follow(copies)
    for edits in rounds:
        edit(copies, edits)  # type: ignore[arg-type]  # hypothesis' lists
        count = noted_count(copies)
        parts = [take_news(copies, 3) for _ in range(count // 3 + 1)]
        assert sum(map(len, parts)) == count == len({(kind, key) for part in parts for kind, key, _ in part})
        for part in parts:
            learn(others, part)
        assert others == copies
        assert take_news(copies, 3) == []


def test_nothing_is_noted_unless_somebody_follows() -> None:
    """The sets would grow for ever."""
    copies = {"X": Copy()}
    edit(copies, [("X", "a", 2), ("X", "b", 0)])
    assert (noted_count(copies), copies["X"].noted) == (0, None)
    follow(copies)
    edit(copies, [("X", "a", 0)])
    assert take_news(copies, 9) == [("X", "a", None)]
    follow_no_more(copies)
    edit(copies, [("X", "a", 2)])
    assert copies["X"].noted is None
