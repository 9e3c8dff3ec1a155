"""One running scheduler: state, queue, profiles, watches, commits and reports, wired to one API server.

``Service`` knows nothing of signals, files or HTTP servers; ``run`` adds those, the demo and tests use it as it is.
"""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import DEVICE_TAINT_RULE, NAMESPACE, NODE, POD, RESOURCE_CLAIM, Kind
from scheduler.api.podgroups import POD_GROUP
from scheduler.api.policy import POD_DISRUPTION_BUDGET
from scheduler.api.storage import STORAGE_KINDS
from scheduler.api.versions import ResourceKinds
from scheduler.api.workloads import WORKLOADS
from scheduler.app.auditing import Auditing
from scheduler.app.measuring import Measuring
from scheduler.app.profiles import build_profiles, queue_hooks
from scheduler.audit.trail import Trail
from scheduler.cel import build_parser
from scheduler.config import SchedulerConfig
from scheduler.dra.features import Features
from scheduler.edge.audit_hooks import AuditedClaims, AuditedReports
from scheduler.edge.bad_objects import BadObject
from scheduler.edge.binder import Binder
from scheduler.edge.claims import ClaimWriter
from scheduler.edge.client import ApiClient
from scheduler.edge.commit import Committer
from scheduler.edge.events import EventRecorder
from scheduler.edge.evict import Evictor
from scheduler.edge.extenders import ExtenderClient
from scheduler.edge.gangs import GroupCycles
from scheduler.edge.group_status import GroupStatusWriter
from scheduler.edge.loop import SchedulingLoop
from scheduler.edge.pod_claims import PodClaims
from scheduler.edge.reconcile import Reconciler
from scheduler.edge.reflector import Reflector
from scheduler.edge.reports import AttemptReports, Log
from scheduler.edge.status import StatusWriter
from scheduler.edge.volumes import VolumeWriter
from scheduler.explain.summary import Summaries
from scheduler.framework.instructions import PreemptPods
from scheduler.framework.permit import WaitingPods
from scheduler.framework.profile import Profile
from scheduler.framework.status import Status
from scheduler.queue.hooks import QueueObserver
from scheduler.queue.pod import Place, QueuedPod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster import ClusterState
from scheduler.state.events import ClusterEvent

PODS_SELECTOR = "status.phase!=Succeeded,status.phase!=Failed"
DRAIN_TIMEOUT_S = 5.0
GC_THRESHOLDS = (5_000, 2, 5_000)
"""Structs of a Pod's life die by reference count; the collector only has to find the rare cycle: in small bites, as it
goes through what has come since the last time in one piece, 3 ms for 5,000 objects.
"""
LISTS_AT_ONCE = 2
"""First LISTs of kinds that are under way together: a handshake, and slices of decoding, for each."""


class _Observer(QueueObserver):
    """Passes on what the queue tells."""

    def __init__(self, incoming: Callable[[Place, str], None], measuring: Measuring | None = None) -> None:
        self._incoming, self._measuring = incoming, measuring
        self.on_gated: Callable[[QueuedPod, Status], None] = lambda queued, status: None

    def incoming(self, place: Place, event_label: str) -> None:
        self._incoming(place, event_label)

    def clock(self) -> float:
        return 0.0 if self._measuring is None else self._measuring.clock()

    def hint_took(self, plugin: str, event: ClusterEvent, answer: str, duration_s: float) -> None:
        if self._measuring is not None:
            self._measuring.hint_took(plugin, event, answer, duration_s)

    def gated(self, queued: QueuedPod, status: Status) -> None:
        self.on_gated(queued, status)


class Service:
    """Everything one replica runs. ``start`` begins to watch, ``run`` decides until ``stop``, ``close`` ends it all.

    ``clock``: steady seconds since the epoch (``loop.wall`` may be set to the wall clock). ``may_decide``: False while
    not leading. ``beat``: called at least once a second. ``kinds``: resource.k8s.io in the versions that the server
    serves, by default v1. ``measuring``: times plugins, hints and events. ``auditing``: keeps the audit trail and the
    recording; it is closed with the service.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        client: ApiClient,
        meter: Any,
        log: Log,
        *,
        clock: Callable[[], float],
        instance: Callable[[str], str],
        feature_gates: Mapping[str, bool] | None = None,
        may_decide: Callable[[], bool] = lambda: True,
        beat: Callable[[], None] = lambda: None,
        verify_caches: bool = False,
        max_unschedulable_s: float = 300.0,
        reconcile_s: float = 300.0,
        kinds: ResourceKinds | None = None,
        measuring: Measuring | None = None,
        auditing: Auditing | None = None,
        namespaces: frozenset[str] = frozenset(),
    ) -> None:
        self.config, self.client, self.meter, self.log = config, client, meter, log
        kinds = kinds or ResourceKinds()
        features = Features.from_gates(feature_gates or {})
        self._auditing = auditing
        self.state = ClusterState(features) if auditing is None else auditing.state(features)
        self.state.served = namespaces
        waiting_pods = WaitingPods()
        self._measuring = measuring
        self.profiles = self._measured(
            build_profiles(config, self.state, lambda: str(uuid.uuid4()), features, waiting_pods)
        )
        observer = _Observer(meter.incoming, measuring)
        self._hooks = queue_hooks(self.profiles)
        self.queue = self._queue(observer, max_unschedulable_s)
        self.recorder = EventRecorder(client, on_trouble=self._trouble)
        self.status = StatusWriter(client, on_trouble=self._trouble)
        self._synced = False
        self._beginning = asyncio.Semaphore(LISTS_AT_ONCE)
        self.reflectors = {kind.name: self._reflector(kind) for kind in watched_kinds(kinds, features)}
        self._summaries = Summaries()
        trail = None

        def decides() -> bool:
            return self.synced and not self.loop.intake.holding and may_decide()

        if auditing is not None:
            trail = auditing.trail(self.state, self.profiles, clock, decides)
        self._audited: AuditedReports | None = None
        reports = self._reports(instance, trail)
        self.extenders: ExtenderClient | None = None
        self.committer = self._committer(kinds, trail, beat)
        self.committer.on_wait = reports.waiting
        self.loop = self._scheduling_loop(reports, waiting_pods, clock, decides, beat, verify_caches)
        self._wire_preemption(client, reports, clock)
        self.group_status = self._groups() if features.generic_workload else None
        observer.on_gated = self.loop.note_gated
        if auditing is not None:
            auditing.listen(self.loop, reports)
        self.reconciler = self._reconciler(reconcile_s)
        self._tasks: list[asyncio.Task[None]] = []

    def _queue(self, observer: _Observer, max_unschedulable_s: float) -> SchedulingQueue:
        sort_key = next(iter(self.profiles.values())).queue_sort.sort_key
        backoff_s = self.config.pod_initial_backoff_s, self.config.pod_max_backoff_s
        return SchedulingQueue(self._hooks, sort_key, *backoff_s, max_unschedulable_s, observer)

    def _scheduling_loop(
        self,
        reports: AttemptReports,
        waiting_pods: WaitingPods,
        clock: Callable[[], float],
        decides: Callable[[], bool],
        beat: Callable[[], None],
        verify_caches: bool,
    ) -> SchedulingLoop:
        """The loop, which lets no Pod into the queue before every kind is listed."""
        loop = SchedulingLoop(
            self.state,
            self.queue,
            self.profiles,
            self.committer,
            reports,
            clock=clock,
            may_decide=decides,
            beat=beat,
            why_gated=lambda pod: self._hooks[pod.spec.schedulerName].pre_enqueue(pod, None),
            waiting_pods=waiting_pods,
            verify_caches=verify_caches,
        )
        loop.intake.hold()
        return loop

    def _groups(self) -> GroupStatusWriter:
        """Let Pods that belong together be decided together; who writes the conditions of their groups."""
        writer = GroupStatusWriter(self.client, on_trouble=self._trouble)
        self.loop.serve_groups(GroupCycles(self.loop, writer, self.meter.group_attempt))
        return writer

    def _reconciler(self, interval_s: float) -> Reconciler:
        return Reconciler(
            list(self.reflectors.values()),
            self.loop.check,
            self.meter.repaired,
            self._trouble,
            catch_up=self.loop.catch_up,
            interval_s=interval_s,
        )

    def _measured(self, profiles: Mapping[str, Profile]) -> Mapping[str, Profile]:
        measuring = self._measuring
        if measuring is None:
            return profiles
        return {name: replace(profile, timings=measuring.timings(profile)) for name, profile in profiles.items()}

    def _reports(self, instance: Callable[[str], str], trail: Trail | None) -> AttemptReports:
        told = self.recorder, self.status, self.meter, self.log, instance, self._summarize
        if trail is None:
            return AttemptReports(*told)
        self._audited = AuditedReports(*told, trail=trail)
        return self._audited

    def _committer(self, kinds: ResourceKinds, trail: Trail | None, beat: Callable[[], None]) -> Committer:
        client, meter = self.client, self.meter
        writer, binder = ClaimWriter(client, kind=kinds.claim), Binder(client)
        committer = Committer(
            self.state,
            writer if trail is None else AuditedClaims(writer, trail),
            PodClaims(client, writer, kind=kinds.claim, on_created=meter.claim_created),
            VolumeWriter(client),
            binder,
            self.reflectors[RESOURCE_CLAIM.name],
            self._own_events,
        )
        committer.verification.on_verified = meter.verified
        committer.performer.on_claim_write = meter.claim_written
        if self.config.extenders:
            self.extenders = ExtenderClient(self.config.extenders, client, binder, beat, self._trouble)
            committer.performer.extenders = self.extenders
        return committer

    def _wire_preemption(self, client: ApiClient, reports: AttemptReports, clock: Callable[[], float]) -> None:
        def displace(pod: Pod) -> None:
            self.loop.displace(pod)
            reports.displaced(pod)

        def preempt(preemption: PreemptPods) -> None:
            reports.preemption_begun(preemption)
            self.evictor.start(preemption)

        self.evictor = Evictor(
            client,
            self.state,
            reports,
            withdraw=self.loop.withdraw,
            displace=displace,
            activate=self.loop.activate,
            clock=clock,
        )
        self.committer.performer.on_preempt = preempt
        self.committer.on_kept_waiting = self._name_node

    def _name_node(self, pod: Pod) -> None:
        """The Binding has to wait: meanwhile the Pod's status names the node (spec 6.3)."""
        placement = self.state.placements.get(pod.uid)
        if placement is not None:
            self.status.nominate(pod, placement.node)

    @property
    def synced(self) -> bool:
        """True once every kind has been listed: before that nothing is decided."""
        if not self._synced:
            self._synced = all(reflector.synced.is_set() for reflector in self.reflectors.values())
        return self._synced

    def deliver(self, batch: list[Change], revision: int) -> None:
        """The sink of all reflectors (the loop exists only after them)."""
        if self._audited is not None:
            for change in batch:
                self._audited.changed(change)
        if self._measuring is None:
            self.loop.deliver(batch, revision)
        else:
            self._measuring.deliver(batch, lambda change: self.loop.deliver([change], revision))

    def _summarize(self, pod: Pod) -> str:
        return self._summaries.summary(self.profiles[pod.spec.schedulerName], pod, self.state, self.loop.wall())

    def _own_events(self, events: Iterable[ClusterEvent]) -> None:
        self.loop.move(events)

    def _reflector(self, kind: Kind) -> Reflector:
        return Reflector(
            self.client,
            kind,
            self,
            field_selector=PODS_SELECTOR if kind is POD else "",
            optional=kind.name in (DEVICE_TAINT_RULE.name, POD_GROUP.name),
            on_bad_object=self._bad_object,
            on_trouble=self._trouble,
            beginning=self._beginning,
        )

    def _bad_object(self, bad: BadObject) -> None:
        self.meter.bad_object(bad.kind.name)
        self.log.error("undecodable object", kind=bad.kind.name, object=bad.key, problem=bad.problem, kept=bad.kept)

    def _trouble(self, text: str) -> None:
        self.log.warning("trouble", message=text)

    def start(self) -> None:
        """Begin to watch and to write events and conditions.

        What is imported by now leaves the garbage collector's sight: it would be gone through again and again while
        the first lists come in.
        """
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        for work in (
            *(reflector.run() for reflector in self.reflectors.values()),
            self.recorder.run(),
            self.status.run(),
            self.reconciler.run(),
        ):
            self._tasks.append(asyncio.get_running_loop().create_task(work))
        if self._auditing is not None:
            self._tasks.append(asyncio.get_running_loop().create_task(self._auditing.run()))

    async def wait_synced(self) -> None:
        """Until every kind has been listed once and its Pods are queued; then long-lived objects leave the garbage
        collector's sight.

        Where there are device classes, expressions come with the first claim: the parser is ready for them.
        Raises what a background task died of, rather than waiting for ever.
        """
        waits = [asyncio.ensure_future(reflector.synced.wait()) for reflector in self.reflectors.values()]
        try:
            while not all(wait.done() for wait in waits):
                pending = [wait for wait in waits if not wait.done()]
                await asyncio.wait([*pending, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
                self._raise_failed()
        finally:
            for wait in waits:
                wait.cancel()
        if self.state.devices.classes:
            await asyncio.to_thread(build_parser)  # a lease is renewed meanwhile
        await self.loop.let_in()
        gc.freeze()

    async def run(self) -> None:
        """Decide until ``stop``; what is being written then is finished. A background task that dies ends it too."""
        deciding = asyncio.get_running_loop().create_task(self.loop.run())
        await asyncio.wait([deciding, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        if not deciding.done():
            self.loop.stop()
        await deciding
        await self.evictor.finish()
        self._raise_failed()

    def _raise_failed(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def stop(self) -> None:
        """Take no further Pod. ``run`` returns once every commit under way has ended."""
        self.loop.stop()

    async def close(self, drain: bool = True) -> None:
        """Write what is still to be said (``drain``), then end every task."""
        if drain:
            await self.status.drain(DRAIN_TIMEOUT_S)
            await self.recorder.drain(DRAIN_TIMEOUT_S)
            if self.group_status is not None:
                await self.group_status.drain(DRAIN_TIMEOUT_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.group_status is not None:
            await self.group_status.close()
        if self.extenders is not None:
            await self.extenders.close()
        if self._auditing is not None:
            await self._auditing.close()


def watched_kinds(kinds: ResourceKinds, features: Features | None = None) -> tuple[Kind, ...]:
    """What a scheduler reads of the API server, in the order the watches start. ``features`` None: the defaults."""
    devices = (kinds.claim, kinds.slice, kinds.device_class, kinds.taint_rule)
    groups = (POD_GROUP,) if features is not None and features.generic_workload else ()
    return (NODE, POD, NAMESPACE, POD_DISRUPTION_BUDGET, *WORKLOADS, *STORAGE_KINDS, *devices, *groups)
