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
    places = np.arange(len(totals))
    if len(totals) > limit:
        border = np.partition(totals, len(totals) - limit)[len(totals) - limit]
        places = np.flatnonzero(totals >= border)
        if len(places) > 4 * limit:  # a broad tie: the winner and the first few will do
            places = np.union1d(np.flatnonzero(totals == totals.max())[: 2 * limit], places[: 2 * limit])
    places = places[np.argsort(-totals[places], kind="stable")]
    try:
        single = dict(table.normalized)
    except InternalError:
        single = {}
    names = [table.table.name_of(int(table.rows[place])) for place in places.tolist()]
    kept = list(range(min(limit, len(names))))
    if chosen in names and names.index(chosen) >= limit:
        kept[-1] = names.index(chosen)
    return tuple(
        NodeScore(
            names[index],
            int(totals[places[index]]),
            {name: int(scores[places[index]]) for name, scores in single.items()},
        )
        for index in kept
    )
