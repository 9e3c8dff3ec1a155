"""kube-scheduler and we race for the same devices behind the guard: no device has two holders at any revision."""

from __future__ import annotations

from pathlib import Path

from e2e.api import Api
from e2e.controlplane import ControlPlane
from e2e.race import race

PODS_EACH, DEVICES = 60, 72


async def test_with_the_guard_nobody_gives_a_device_twice(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """60 Pods each for 72 devices: every device is given in the end, none has two holders at any revision, by anyone.

    The numbers of five rounds of 1,000 Pods each for 1,200 devices: python -m e2e.race --guard.
    """
    result = await race(clean_cluster, control_plane, tmp_path, pods=PODS_EACH, devices=DEVICES, guard=True)
    print(result.line())
    assert result.doubles == []
    assert result.unreserved == []
    assert sum(result.bound.values()) == DEVICES
    assert result.reviews >= DEVICES
