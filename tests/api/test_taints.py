"""Taints and tolerations (spec 3.5)."""

from __future__ import annotations

import pytest

from scheduler.api.taints import Taint, Toleration, first_untolerated, tolerates


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", operator="Equal", value="v", effect="NoSchedule"), True),
        (Toleration(key="k", value="w"), False),
        (Toleration(key="k"), False),
        (Toleration(key="other", value="v"), False),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="k", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="k", operator="Lt", value="v"), False),
        (Toleration(value="v"), True),
    ],
)
def test_tolerates(toleration: Toleration, expected: bool) -> None:
    """Effect and key match when empty or equal; Equal compares values, Exists does not, other operators never."""
    assert tolerates(toleration, Taint("k", "v", "NoSchedule")) is expected


def test_first_untolerated_looks_at_hard_effects_in_order() -> None:
    """Soft taints and tolerated ones are passed over; the first hard one left is the answer."""
    soft, hard = Taint("a", "", "PreferNoSchedule"), Taint("b", "", "NoExecute")
    later = Taint("c", "", "NoSchedule")
    assert first_untolerated((soft, hard, later), ()) == hard
    assert first_untolerated((soft, hard, later), (Toleration(key="b", operator="Exists"),)) == later
    assert first_untolerated((soft,), ()) is None
    assert first_untolerated((soft,), (), effects=("PreferNoSchedule",)) == soft
