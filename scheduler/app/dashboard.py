"""Puts the questions and the dashboard of one replica together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scheduler.app.answers import Answers
from scheduler.app.service import Service
from scheduler.edge.callers import ApiReviews
from scheduler.edge.client import ApiClient
from scheduler.edge.dashboard import Dashboard, read_assets
from scheduler.edge.http import Mount
from scheduler.edge.questions import Questions, Stories


def dashboard_mounts(
    service: Service,
    reviewer: ApiClient,
    *,
    verify: bool = False,
    on_slice: Callable[[float], None] = lambda seconds: None,
    stories: Stories | None = None,
) -> Sequence[Mount]:
    """What the secure port serves beside health and metrics. ``reviewer`` asks who callers are and what they may see.

    ``verify``: recompute the questions' own state after each refresh. ``on_slice`` is told how long each slice took.
    """
    questions = Questions(Answers(service, on_slice=on_slice, verify=verify), ApiReviews(reviewer), stories)
    return questions.mount, Dashboard(read_assets()).mount
