"""Readiness tells the truth: not before everything was listed, not any more once the lease is lost or the end began."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from scheduler.app.replica import Replica
from scheduler.config import RunOptions
from scheduler.edge.credentials import Access


@dataclass
class Watching:
    """What the checks ask of the service."""

    synced: bool = True


def complaints(replica: Replica, watching: Watching, path: str = "readyz") -> list[str]:
    """What keeps the endpoint from saying ok."""
    return [text for check in replica._checks(watching)[path].values() if (text := check())]  # type: ignore[arg-type]  # only ``synced`` is asked


@pytest.fixture
async def replica() -> Replica:
    """A replica that has not begun to run, with leader election."""
    return Replica(RunOptions(), Access("http://127.0.0.1:1"))


async def test_a_standby_that_has_listed_everything_is_ready(replica: Replica) -> None:
    """It could take over at once."""
    assert complaints(replica, Watching()) == []


async def test_not_ready_before_every_kind_was_listed(replica: Replica) -> None:
    """Alive all the same."""
    assert complaints(replica, Watching(synced=False)) == ["not every kind has been listed yet"]
    assert complaints(replica, Watching(synced=False), "livez") == []


async def test_not_ready_once_the_lease_is_lost(replica: Replica) -> None:
    """From the moment the lease thread says so, whatever the loop still does."""
    replica._note_lost("not renewed within 10 s")
    assert complaints(replica, Watching()) == ["process is shutting down"]


async def test_not_ready_while_it_ends(replica: Replica) -> None:
    """SIGTERM: what is being written is finished, nothing new is taken."""
    replica._stopping = True
    assert complaints(replica, Watching()) == ["process is shutting down"]
