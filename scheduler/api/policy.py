"""PodDisruptionBudgets: what preemption must not overdraw when it can be helped."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.api.kinds import Kind
from scheduler.api.meta import ObjectMeta
from scheduler.api.selectors import LabelSelector


class PodDisruptionBudgetSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which Pods the budget speaks of."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """``disruptionsAllowed``: Pods that may go now. ``disruptedPods``: names of Pods whose going is counted already."""

    disruptionsAllowed: int = 0
    disruptedPods: dict[str, Any] = {}


class PodDisruptionBudget(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A PodDisruptionBudget, as far as preemption reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


POD_DISRUPTION_BUDGET = Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", True, PodDisruptionBudget)
