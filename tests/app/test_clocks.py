"""A wall clock that jumps: waits go by the clock since boot, dates by the wall clock."""

from __future__ import annotations

import time

import pytest

from scheduler.api.versions import ResourceKinds
from scheduler.app.replica import Replica, RunOptions
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import Access


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
async def test_a_jump_of_the_wall_clock_moves_no_wait(jump_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by chaos: after a jump forwards and back, a held-back Pod was told nothing for as long as the jump was."""
    access = Access("http://127.0.0.1:1")
    async with ApiClient(access) as client:
        loop = Replica(RunOptions(), access)._service(client, ResourceKinds()).loop
        clock, wall = loop.clock(), loop.wall()
        assert clock == pytest.approx(wall, abs=5.0)
        monkeypatch.setattr("scheduler.app.replica.time.time", lambda: wall + jump_s)
        assert time.time() == wall + jump_s
        assert loop.clock() == pytest.approx(clock, abs=5.0)
        assert loop.gated.clock is loop.intake.clock is loop.clock
