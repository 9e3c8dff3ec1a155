"""The best nodes of a score table."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api.kinds import NODE, convert
from scheduler.audit.best import best_scores
from scheduler.framework.runner import ScoreTable
from scheduler.state.nodes import NodeTable
from tests.app.objects import node


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(0, 39))
def test_the_best_come_first_and_the_chosen_one_is_among_them(totals: list[int], pick: int) -> None:
    """As sorting everything would say, equal ones in node order; a chosen node beyond the limit takes the last one."""
    table = NodeTable()
    rows = np.asarray([table.add(convert(NODE, node(f"n{number:02}"))) for number in range(len(totals))], np.int64)
    place = pick % len(totals)
    found = best_scores(ScoreTable(rows, table, np.asarray(totals, np.int64)), f"n{place:02}", 5)
    ranked = sorted(range(len(totals)), key=lambda number: (-totals[number], number))
    expected = ranked[:5]
    if place not in expected:
        expected = [*expected[:4], place]
    assert [(score.node, score.total) for score in found] == [(f"n{number:02}", totals[number]) for number in expected]
