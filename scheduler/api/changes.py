"""Change: one object as it was and as it is, with the revision at which that was seen."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.api.kinds import Kind


class Change(msgspec.Struct, frozen=True):
    """``old`` is None for an addition, ``new`` None for a deletion; never both.

    ``revision`` is the resourceVersion the change was seen at: the object's own, for a deletion that of the watch
    event. ``by_list`` marks a change found by comparing with a LIST: when exactly it happened is then unknown.
    """

    kind: Kind
    old: Any
    new: Any
    revision: int = 0
    by_list: bool = False
