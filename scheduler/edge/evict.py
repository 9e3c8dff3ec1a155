"""Carries a preemption out in the background: victims are told why, then deleted.

Source: kube-scheduler 1.37, prepareCandidateAsync and PreemptPod (spec 3.18.5). All victims but the last go side by
side, the last one afterwards, so that the preemptor is still held back when the others' going wakes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from scheduler.api.bodies import JSON, STRATEGIC_MERGE_PATCH, delete_options, pod_disruption_patch
from scheduler.api.core import Pod
from scheduler.api.kinds import POD
from scheduler.edge.client import ApiClient
from scheduler.edge.errors import AnswerLost, Conflict, Invalid, NotFound
from scheduler.edge.times import rfc3339_now
from scheduler.framework.instructions import PreemptPods
from scheduler.state.cluster import ClusterState

PREEMPTION_REASON = "PreemptionByScheduler"
_TRIES_MAX = 4
_PAUSE_S = 0.05
_FAILED_PAUSE_FIRST_S, _FAILED_PAUSE_MAX_S = 0.1, 10.0
_FINISH_TIMEOUT_S = 5.0


class PreemptionReports(Protocol):
    """What is told of a preemption."""

    def preempted(self, victim: Pod, preemptor: Pod, node: str, in_memory: bool) -> None: ...
    def preemption_ended(self, result: str, duration_s: float) -> None: ...
    def preemption_trouble(self, text: str) -> None: ...


class Evictor:
    """Runs preemptions side by side with the loop.

    ``withdraw(uid)`` makes a Pod that we are about to bind give its place back and answers True once it has, or False
    when it is too late or the Pod is none of ours. ``displace(pod)`` ends a Pod's nomination. ``activate(uid)`` lets
    the preemptor try again at once: after a failure, and when nobody's going will wake it.
    """

    def __init__(
        self,
        client: ApiClient,
        state: ClusterState,
        reports: PreemptionReports,
        *,
        withdraw: Callable[[str], Awaitable[bool]],
        displace: Callable[[Pod], None],
        activate: Callable[[str], None],
        clock: Callable[[], float],
        now: Callable[[], str] = rfc3339_now,
    ) -> None:
        self._client, self._state, self._reports = client, state, reports
        self._withdraw, self._displace, self._activate = withdraw, displace, activate
        self._clock, self._now = clock, now
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[str, int] = {}

    def start(self, preemption: PreemptPods) -> None:
        """Begin; returns at once. Victims that are being deleted already are left alone."""
        victims = [victim for victim in preemption.victims if not self._going(victim)]
        for pod in preemption.displaced:
            self._displace(pod)
        if not victims:
            preemption.progress.ended = True
            return
        self._state.choose_victims([victim.uid for victim in victims])
        task = asyncio.get_running_loop().create_task(self._run(preemption, victims))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait for every preemption under way, 5 seconds at most; what is left then is given up."""
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=_FINISH_TIMEOUT_S)
            for task in left:
                task.cancel()

    async def _run(self, preemption: PreemptPods, victims: list[Pod]) -> None:
        started = self._clock()
        preemptor, failed = preemption.preemptor, False
        results = await asyncio.gather(
            *(self._preempt(preemption, victim) for victim in victims[:-1]), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                failed = True
                self._trouble(preemptor, result)
        preemption.progress.last = victims[-1]
        in_memory = False
        try:
            in_memory = await self._preempt(preemption, victims[-1])
        except Exception as error:  # whatever it was: the preemptor must not be held back for ever
            failed = True
            self._trouble(preemptor, error)
        # Otherwise the last victim's going opens the gate and wakes the preemptor: not before the watch has shown it,
        # or the next attempt would take the same victims for Pods that stay.
        over = failed or in_memory or not any(victim.uid in self._state.placements for victim in victims)
        if over:
            self._spare(preemption, victims)
        await self._pause_after(preemptor, failed)
        self._reports.preemption_ended("error" if failed else "success", self._clock() - started)
        if over:
            preemption.progress.ended = True
            self._activate(preemptor.uid)

    def _spare(self, preemption: PreemptPods, victims: list[Pod]) -> None:
        """Nobody has to wait for them any more; the others that are nominated to the node may have."""
        self._state.spare_victims([victim.uid for victim in victims])
        for info in list(self._state.nominator.on(preemption.node)):
            if info.uid != preemption.preemptor.uid:
                self._activate(info.uid)

    async def _pause_after(self, preemptor: Pod, failed: bool) -> None:
        """The preemptor stays held back for a while when evictions keep failing: trying at once would never end."""
        if not failed:
            self._failures.pop(preemptor.uid, None)
            return
        count = self._failures[preemptor.uid] = self._failures.get(preemptor.uid, 0) + 1
        await asyncio.sleep(min(_FAILED_PAUSE_FIRST_S * 2 ** min(count - 1, 10), _FAILED_PAUSE_MAX_S))
        if preemptor.uid not in self._state.pods:
            del self._failures[preemptor.uid]

    def _trouble(self, preemptor: Pod, error: BaseException) -> None:
        self._reports.preemption_trouble(f"preemption for pod {preemptor.key}: {type(error).__name__}: {error}")

    async def _preempt(self, preemption: PreemptPods, victim: Pod) -> bool:
        """Make one victim go; True when it had no node yet but in our memory. Raises ClusterError."""
        in_memory = await self._withdraw(victim.uid)
        if in_memory:
            self._state.spare_victims([victim.uid])  # it waits again, and may stay where it is placed next
        else:
            try:
                await self._evict(preemption, victim)
            except NotFound:
                return False
        self._reports.preempted(victim, preemption.preemptor, preemption.node, in_memory)
        return in_memory

    async def _evict(self, preemption: PreemptPods, victim: Pod) -> None:
        """Condition, then DELETE. Both carry the uid: a Pod that came back under the name is not meant (a conflict)."""
        namespace, name = victim.metadata.namespace, victim.metadata.name
        profile = preemption.preemptor.spec.schedulerName
        message = f"{profile}: preempting to accommodate a higher priority pod"
        newest = self._state.pods.get(victim.uid, victim)
        body = pod_disruption_patch(newest, PREEMPTION_REASON, message, self._now())
        if body is not None:
            # A wrong uid is a conflict or invalid here; what that means the DELETE finds out.
            with suppress(Conflict, Invalid):
                await self._repeat("PATCH", POD.path(namespace, name, "status"), body, STRATEGIC_MERGE_PATCH)
        await self._repeat("DELETE", POD.path(namespace, name), delete_options(victim.uid), JSON)

    async def _repeat(self, method: str, path: str, body: bytes, content_type: str) -> None:
        """Both calls may be repeated after a lost answer."""
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._client.call(method, path, body, content_type)
                return
            except AnswerLost:
                if attempt == _TRIES_MAX:
                    raise
                await asyncio.sleep(_PAUSE_S * attempt)

    def _going(self, victim: Pod) -> bool:
        newest = self._state.pods.get(victim.uid)
        return newest is None or newest.metadata.deletionTimestamp is not None
