"""Taints and tolerations of nodes and devices."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"


class Taint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A taint of a node or of a device."""

    key: str = ""
    value: str = ""
    effect: str = ""
    timeAdded: str | None = None


class Toleration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A toleration of a Pod or of a device request."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    tolerationSeconds: int | None = None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """True when ``toleration`` covers ``taint``.

    Effect and key match when empty or equal; operator empty or Equal compares values, Exists does not; any other
    operator tolerates nothing. Source: kube-scheduler 1.37, TaintToleration and the DRA allocator share this rule
    (Lt and Gt need the alpha gate TaintTolerationComparisonOperators, off by default).
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """True when any of ``tolerations`` covers ``taint``."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def first_untolerated(
    taints: Sequence[Taint],
    tolerations: Sequence[Toleration],
    effects: Sequence[str] = (NO_SCHEDULE, NO_EXECUTE),
) -> Taint | None:
    """The first taint with one of ``effects`` that nothing tolerates, None when all are tolerated."""
    for taint in taints:
        if taint.effect in effects and not tolerated(taint, tolerations):
            return taint
    return None
