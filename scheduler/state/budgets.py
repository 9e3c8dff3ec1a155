"""PodDisruptionBudgets by name, and which Pods would overdraw them.

Source: kube-scheduler 1.37, DefaultPreemption (spec 3.18.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scheduler.api.core import Pod
from scheduler.api.policy import PodDisruptionBudget
from scheduler.api.selectors import SelectorError
from scheduler.state.podinfo import PodInfo
from scheduler.state.topology_terms import Requirements, requirements_of, selects


class BudgetState:
    """The newest PodDisruptionBudgets, in order of appearance; selectors are read once per object."""

    def __init__(self) -> None:
        self._budgets: dict[str, dict[str, tuple[PodDisruptionBudget, Requirements]]] = {}

    def apply(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        """Take in one change. O(1)."""
        if new is not None:
            of_namespace = self._budgets.setdefault(new.metadata.namespace, {})
            of_namespace[new.metadata.name] = (new, _requirements(new))
        elif old is not None:
            of_namespace = self._budgets.get(old.metadata.namespace, {})
            of_namespace.pop(old.metadata.name, None)
            if not of_namespace:
                self._budgets.pop(old.metadata.namespace, None)

    def objects(self) -> Iterator[PodDisruptionBudget]:
        """Every budget."""
        return (budget for of_namespace in self._budgets.values() for budget, _ in of_namespace.values())

    def __bool__(self) -> bool:
        return bool(self._budgets)

    def violating(self, infos: Sequence[PodInfo]) -> list[bool]:
        """Whether each Pod's going, one after the other, would overdraw a budget.

        A budget that a Pod overdraws ends the look at that Pod: later ones are not charged for it.
        """
        if not self._budgets:
            return [False] * len(infos)
        left: dict[int, int] = {}
        return [self._overdraws(info, left) for info in infos]

    def _overdraws(self, info: PodInfo, left: dict[int, int]) -> bool:
        metadata = info.pod.metadata
        if not metadata.labels:
            return False
        for budget, requirements in self._budgets.get(metadata.namespace, {}).values():
            if not requirements or not selects(requirements, metadata.labels):
                continue
            if metadata.name in budget.status.disruptedPods:
                continue
            allowed = left.get(id(budget), budget.status.disruptionsAllowed) - 1
            left[id(budget)] = allowed
            if allowed < 0:
                return True
        return False


def speaks_of(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """True when the budget counts the Pod."""
    metadata = pod.metadata
    requirements = _requirements(budget)
    same = metadata.namespace == budget.metadata.namespace
    return same and bool(requirements) and selects(requirements, metadata.labels)


def _requirements(budget: PodDisruptionBudget) -> Requirements:
    """The budget's selector; an empty one, and one that cannot be read, speaks of no Pod (None or ``()``)."""
    try:
        return requirements_of(budget.spec.selector)
    except SelectorError:
        return None
