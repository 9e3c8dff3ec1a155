"""A service that records, and the replay of all that it recorded."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from scheduler.app.auditing import Auditing, build_auditing
from scheduler.app.replaying import Replay, replay
from scheduler.config import load_config
from scheduler.config.options import AuditOptions
from tests.app.world import World, world

Object = dict[str, Any]


class Meter:
    """Counts what the writers say."""

    def __init__(self) -> None:
        self.written = self.dropped = self.failed = self.gaps = 0

    def audit_written(self, count: int, size_bytes: int) -> None:
        self.written += count

    def audit_dropped(self, count: int) -> None:
        self.dropped += count

    def audit_failed(self) -> None:
        self.failed += 1

    def record_gap(self) -> None:
        self.gaps += 1


def auditing(folder: Path, config: str = "", gates: dict[str, bool] | None = None, **options: Any) -> Auditing:
    """Trail and recording into a folder; ``options``: of AuditOptions, or ``run_id``."""
    run_id = options.pop("run_id", "run")
    given = {"file": str(folder / "audit.db"), "record": str(folder / "journal"), **options}
    troubles: list[str] = []
    built = build_auditing(
        AuditOptions(**given),
        load_config(config),
        gates or {},
        Meter(),
        troubles.append,
        clock=time.time,
        run_id=run_id,
        replica="replica-a",
    )
    assert built is not None
    return built


@asynccontextmanager
async def recorded_world(
    folder: Path, objects: list[Object], config: str = "", gates: dict[str, bool] | None = None, **options: Any
) -> AsyncIterator[World]:
    """A world whose service keeps trail and recording in ``folder``; both are complete once it has ended."""
    async with world(
        objects, config, auditing=auditing(folder, config, gates, **options), feature_gates=gates or {}
    ) as running:
        yield running


def replay_all(folder: Path) -> Replay:
    """Replay everything; every decision has to come out as it was."""
    found = replay(str(folder / "journal"))
    assert not [window.problem for window in found.windows if window.problem]
    for result in found.results:
        assert not result.refused, result
        assert result.equal, result
    return found
