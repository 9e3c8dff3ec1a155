"""The best nodes of a score table, for the trail: a decision's scores in a few lines instead of thousands."""

from __future__ import annotations

import numpy as np

from scheduler.audit.records import NodeScore
from scheduler.errors import InternalError
from scheduler.framework.runner import ScoreTable

BEST_MAX = 5


def best_scores(table: ScoreTable, chosen: str, limit: int = BEST_MAX) -> tuple[NodeScore, ...]:
    """The ``limit`` best nodes, best first, equal ones in node order; ``chosen`` is among them.

    Single plugins' scores are there only until the state moves on. Cost: a few passes over the feasible nodes.
    """
    totals = table.totals
    if len(totals) > limit:
        border = np.partition(totals, len(totals) - limit)[len(totals) - limit]
        better = np.flatnonzero(totals > border)
        best = np.concatenate((better, np.flatnonzero(totals == border)[: limit - len(better)]))
    else:
        best = np.arange(len(totals))
    places: list[int] = best[np.argsort(-totals[best], kind="stable")].tolist()
    row = table.table.row_of(chosen)
    if row is not None:
        own = np.flatnonzero(table.rows == row).tolist()
        if own and own[0] not in places:
            places[-1:] = own
            places.sort(key=lambda place: -int(totals[place]))
    try:
        single = dict(table.normalized)
    except InternalError:
        single = {}
    return tuple(
        NodeScore(
            table.table.name_of(int(table.rows[place])),
            int(totals[place]),
            {name: int(scores[place]) for name, scores in single.items()},
        )
        for place in places
    )
