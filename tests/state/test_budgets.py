"""PodDisruptionBudgets: who would overdraw them (spec 3.18.3, step 4)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.changes import Change
from scheduler.api.kinds import POD, convert
from scheduler.api.policy import POD_DISRUPTION_BUDGET, PodDisruptionBudget
from scheduler.state.budgets import BudgetState
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import PodInfo, pod_info


def budget(name: str, selector: Any, allowed: int, namespace: str = "d", **status: Any) -> PodDisruptionBudget:
    item = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {} if selector is None else {"selector": selector},
        "status": {"disruptionsAllowed": allowed, **status},
    }
    found: PodDisruptionBudget = convert(POD_DISRUPTION_BUDGET, item)
    return found


def pods(*labels: str) -> list[PodInfo]:
    """One Pod per text: its label app, or no label at all for ""."""
    return [
        pod_info(
            convert(
                POD,
                {"metadata": {"name": f"p{i}", "namespace": "d", "uid": f"p{i}", "labels": {"app": t} if t else {}}},
            )
        )
        for i, t in enumerate(labels)
    ]


def state(*budgets: PodDisruptionBudget) -> BudgetState:
    found = BudgetState()
    for each in budgets:
        found.apply(None, each)
    return found


WEB = {"matchLabels": {"app": "web"}}
EXISTS = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}


def test_pods_overdraw_one_after_the_other() -> None:
    """Two may go, the third would be too many; Pods of other labels are not counted."""
    assert state(budget("b", WEB, 2)).violating(pods("web", "db", "web", "web")) == [False, False, False, True]


@pytest.mark.parametrize("selector", [None, {}, {"matchExpressions": [{"key": "app", "operator": "Bad"}]}])
def test_a_budget_that_selects_nothing_protects_nobody(selector: Any) -> None:
    """Absent, empty and unreadable selectors match no Pod."""
    assert state(budget("b", selector, 0)).violating(pods("web", "")) == [False, False]


def test_pods_without_labels_and_of_other_namespaces_are_free() -> None:
    """Even a selector that every label set satisfies does not reach them."""
    everyone = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}
    assert state(budget("b", everyone, 0)).violating(pods("")) == [False]
    assert state(budget("b", WEB, 0, namespace="other")).violating(pods("web")) == [False]


def test_a_pod_whose_going_is_counted_already_costs_nothing() -> None:
    """disruptedPods lists Pods that the API server has let go."""
    counted = budget("b", WEB, 0, disruptedPods={"p0": "2026-01-01T00:00:00Z"})
    assert state(counted).violating(pods("web", "web")) == [False, True]


def test_the_first_overdrawn_budget_ends_the_look() -> None:
    """Later budgets are not charged for a Pod that an earlier one would be overdrawn by."""
    both = state(budget("first", WEB, 0), budget("second", EXISTS, 1))
    assert both.violating(pods("web", "db", "db")) == [True, False, True]


def test_the_newest_budget_counts() -> None:
    """An update replaces, a deletion removes, through the cluster state."""
    cluster, old, new = ClusterState(), budget("b", WEB, 0), budget("b", WEB, 1)
    for before, after, expected in ((None, old, [True]), (old, new, [False]), (new, None, [False])):
        assert cluster.apply(Change(POD_DISRUPTION_BUDGET, before, after)) == []
        assert cluster.budgets.violating(pods("web")) == expected
    assert not cluster.budgets
