"""--feature-gates."""

from __future__ import annotations

import pytest

from scheduler.config.gates import DEFAULT_GATES, parse_feature_gates
from scheduler.errors import ConfigError


def test_gates_are_read() -> None:
    """Named gates are returned, others stay out."""
    assert parse_feature_gates("DRADeviceTaints=false, DRAConsumableCapacity=T,") == {
        "DRADeviceTaints": False,
        "DRAConsumableCapacity": True,
    }
    assert parse_feature_gates("") == {}


@pytest.mark.parametrize("gate", sorted(DEFAULT_GATES))
def test_every_gate_may_be_set_to_its_default(gate: str) -> None:
    """Writing down a default is never refused."""
    on = DEFAULT_GATES[gate]
    assert parse_feature_gates(f"{gate}={str(on).lower()}") == {gate: on}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SchedulerQueueingHints=true", "unrecognized feature gate: SchedulerQueueingHints"),
        ("DRADeviceTaints", "missing bool value for DRADeviceTaints"),
        ("DRADeviceTaints=yes", "invalid value of DRADeviceTaints=yes, expected true or false"),
        (
            "DRAAdminAccess=false",
            "cannot set feature gate DRAAdminAccess to false, feature is locked to true",
        ),
        ("CompositePodGroup=true", '"CompositePodGroup"=true is not built yet in dra-scheduler'),
    ],
)
def test_a_gate_that_cannot_be_set_is_refused(text: str, problem: str) -> None:
    """Unknown, malformed, locked and not yet effective settings each have their message."""
    with pytest.raises(ConfigError) as caught:
        parse_feature_gates(text)
    assert (caught.value.path, caught.value.problem) == ("feature-gates", problem)
