"""Builds the audit trail and the recording of a service."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from scheduler import __version__
from scheduler.audit.operations import FORMAT
from scheduler.audit.recorder import Recorder
from scheduler.audit.trail import Origin, Trail
from scheduler.config import SchedulerConfig
from scheduler.config.options import AuditOptions
from scheduler.config.written import document
from scheduler.cycle.decision import Placed
from scheduler.dra.features import Features
from scheduler.edge.audit_hooks import AuditedReports
from scheduler.edge.audit_store import AuditStore
from scheduler.edge.audit_store_writer import AuditMeter, AuditWriter
from scheduler.edge.gangs import GroupCycles
from scheduler.edge.journal import Header, JournalWriter
from scheduler.edge.loop import SchedulingLoop
from scheduler.edge.reports import AttemptReports
from scheduler.queue.pod import QueuedPod
from scheduler.state.cluster import ClusterState
from scheduler.state.devices import Promise


class AuditingMeter(AuditMeter, Protocol):
    """The numbers of both."""

    def record_gap(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Auditing:
    """Where records go, and who says so; where operations go. None: not asked for."""

    origin: Origin
    writer: AuditWriter | None = None
    recorder: Recorder | None = None
    journal: JournalWriter | None = None

    def state(self, features: Features) -> ClusterState:
        """The service's state: one that tells the recorder of its changes, where there is one."""
        return ClusterState(features) if self.recorder is None else self.recorder.state(features)

    def trail(
        self,
        state: ClusterState,
        profiles: Container[str],
        clock: Callable[[], float],
        leading: Callable[[], bool],
    ) -> Trail | None:
        """The service's trail, None when no file is asked for."""
        if self.writer is None:
            return None
        position = _nowhere if self.recorder is None else self.recorder.decision_of
        return Trail(state, profiles, self.origin, self.writer.put, clock=clock, leading=leading, position=position)

    def listen(self, loop: SchedulingLoop, reports: AttemptReports) -> None:
        """Be told of the loop's attempts and decisions. To be called once the loop has its groups."""
        recorder = self.recorder
        tell = reports.reserved if isinstance(reports, AuditedReports) else None

        def reserved(queued: QueuedPod, placed: Placed, promised: Sequence[Promise]) -> None:
            if recorder is not None:
                recorder.reserved(placed, promised)
            if tell is not None:
                tell(queued, placed, promised)

        loop.on_reserved = reserved
        if recorder is not None:
            loop.attempts = recorder.attempts()
            if isinstance(loop.groups, GroupCycles):
                loop.groups.attempts = recorder.group_attempts()

    async def run(self) -> None:
        """Write records until cancelled."""
        if self.writer is not None:
            await self.writer.run()
        await asyncio.Event().wait()  # the service ends when one of its tasks does

    async def close(self) -> None:
        """Write what waits, for a few seconds at most."""
        if self.writer is not None:
            await self.writer.close()
        if self.journal is not None:
            await asyncio.to_thread(self.journal.close)


def _nowhere(pod_uid: str) -> None:
    return None


def build_auditing(
    options: AuditOptions,
    config: SchedulerConfig,
    gates: Mapping[str, bool],
    meter: AuditingMeter,
    on_trouble: Callable[[str], None],
    *,
    clock: Callable[[], float],
    run_id: str,
    replica: str,
    namespaces: frozenset[str] = frozenset(),
) -> Auditing | None:
    """What the options ask for, None when that is nothing. Files are opened later, beside the loop."""
    if not options.file and not options.record:
        return None
    origin = Origin(run_id, replica, __version__, config_digest(config))

    def open_store() -> AuditStore:
        return AuditStore(options.file, max_age_s=options.max_age_s, max_size_bytes=options.max_size_bytes)

    def header(position: int) -> Header:
        written = document(config)
        return Header(FORMAT, run_id, position, clock(), __version__, replica, written, dict(gates), sorted(namespaces))

    def lost(text: str) -> None:
        meter.record_gap()
        on_trouble(text)

    writer = AuditWriter(open_store, meter, on_trouble, clock=clock) if options.file else None
    if not options.record:
        return Auditing(origin, writer)
    journal = JournalWriter(options.record, options.record_max_bytes, header, lost, clock=clock)
    return Auditing(origin, writer, Recorder(journal, run_id), journal)


def config_digest(config: SchedulerConfig) -> str:
    """Short digest of the effective configuration: equal exactly when all of it is."""
    written = msgspec.json.encode(document(config), order="sorted")
    return hashlib.sha256(written).hexdigest()[:12]
