"""Answers of upstream that are others when it is asked again.

Under load its parallel filters now and then lose what nodes were rejected for, and Go goes through maps in a random
order. So a difference that nothing explains is asked about again. Ours is asked once: it never varies.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from e2e.conformity.upstream import Oracle

Json = dict[str, Any]

AGAIN = 3
WAVERED_MAX = 5
"""So many answers of one run may have been others than at first."""


def asked_again(oracle: Oracle, case: Json, differs: Callable[[Json], bool]) -> Json | None:
    """The first of AGAIN further answers to ``case`` that does not differ; None when all do."""
    answers = oracle.answers([json.dumps(case).encode()] * AGAIN)
    return next((answer for answer in answers if not differs(answer)), None)
