"""Puts the questions and the dashboard of one replica together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scheduler.app.answers import Answers
from scheduler.app.recorded_stories import recorded_stories
from scheduler.app.service import Service
from scheduler.edge.callers import ApiReviews
from scheduler.edge.client import ApiClient
from scheduler.edge.dashboard import Dashboard, read_assets
from scheduler.edge.http import Mount
from scheduler.edge.question_metrics import QuestionMetrics
from scheduler.edge.questions import Questions, no_record


def dashboard_mounts(
    service: Service,
    reviewer: ApiClient,
    *,
    verify: bool = False,
    metrics: QuestionMetrics | None = None,
    audit_file: str = "",
    on_trouble: Callable[[str], None] = lambda text: None,
    forking: bool = True,
) -> Sequence[Mount]:
    """What the secure port serves beside health and metrics. ``reviewer`` asks who callers are and what they may see.

    ``verify``: recompute the questions' own state after each refresh. ``metrics`` also get the inventory from here.
    ``audit_file``: this replica's trail, "" without one. ``forking`` False: answers are looked for in this process.
    """
    on_slice = (lambda seconds: None) if metrics is None else metrics.slices.observe
    answers = Answers(service, on_slice=on_slice, verify=verify, forking=forking)
    if metrics is not None:
        metrics.inventory_from(answers.live_inventory)
    on_answer = no_record if metrics is None else metrics.answered
    stories = recorded_stories(audit_file, answers.names)
    questions = Questions(answers, ApiReviews(reviewer), stories, on_answer, on_trouble)
    return questions.mount, Dashboard(read_assets()).mount
