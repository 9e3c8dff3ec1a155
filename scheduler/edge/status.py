"""Writes why a Pod waits into its PodScheduled condition, behind the binds.

Per Pod the newest wish wins; an unchanged condition is not written. Few patches run at the same time, so that Bindings
never wait for a connection. Source: kube-scheduler 1.37, updatePod after a failed attempt (spec 6.2, 6.3): strategic
merge, 4 tries, conflicts included.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from scheduler.api.bodies import STRATEGIC_MERGE_PATCH, pod_condition_patch, pod_nomination_patch
from scheduler.api.core import Pod
from scheduler.api.kinds import POD
from scheduler.api.meta import Condition, ObjectMeta, revision_of
from scheduler.edge.backoff import Backoff
from scheduler.edge.client import RETRY_FACTOR, RETRY_FIRST_S, RETRY_JITTER, TRIES_MAX, ApiClient, Sleep
from scheduler.edge.errors import (
    AnswerLost,
    ApiUnavailable,
    Conflict,
    Invalid,
    NotFound,
    NotLeading,
    ServerError,
    TooManyRequests,
)
from scheduler.edge.times import rfc3339_now
from scheduler.errors import ClusterError

WORKERS = 8
REMEMBERED_MAX = 50_000
AWAY_TRIES_MAX = 14
AWAY_PAUSE_MAX_S = 10.0
"""A server that is away is asked for about a minute; then the Pod's next attempt says it."""
POD_SCHEDULED = "PodScheduled"


class _Said(msgspec.Struct, frozen=True, gc=False):
    """What a Pod's status says, about which generation."""

    reason: str | None
    message: str
    nominated: str | None
    generation: int


class _Wish(msgspec.Struct, frozen=True):
    """What a Pod's status shall say. ``reason`` None: only the nomination changes."""

    pod: Pod
    reason: str | None
    message: str
    nominated: str | None

    def said(self) -> _Said:
        """The same, without the Pod."""
        return _Said(self.reason, self.message, self.nominated, self.pod.metadata.generation)

    def same(self, other: _Wish) -> bool:
        """True when both say the same about the same generation."""
        return self.said() == other.said()


class _Written(msgspec.Struct, frozen=True, gc=False):
    """What was written last, without the Pod: thousands are kept. ``version``: the Pod's revision then."""

    said: _Said
    version: int


class _Answer(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()


_ANSWER = msgspec.json.Decoder(_Answer)


def _nominated_as(wish: _Wish, before: _Wish) -> _Wish:
    """``wish``, with the nomination of one that was not written, when it says nothing of its own about it."""
    if wish.nominated is not None or before.nominated is None:
        return wish
    return msgspec.structs.replace(wish, nominated=before.nominated)


def pod_scheduled(pod: Pod) -> Condition | None:
    """The Pod's PodScheduled condition, None without one."""
    return next((condition for condition in pod.status.conditions if condition.type == POD_SCHEDULED), None)


class StatusWriter:
    """``set_condition`` and ``nominate`` only note the wish; ``run`` is the task that writes."""

    def __init__(
        self,
        client: ApiClient,
        *,
        now: Callable[[], str] = rfc3339_now,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
        on_trouble: Callable[[str], None] = lambda text: None,
        workers: int = WORKERS,
    ) -> None:
        self.failures = 0
        self._client, self._now, self._sleep, self._rng = client, now, sleep, rng or random.Random()
        self._on_trouble, self._workers = on_trouble, workers
        self._wishes: OrderedDict[str, _Wish] = OrderedDict()
        self._busy: set[str] = set()
        self._dropped: set[str] = set()
        self._doubtful: set[str] = set()
        """Pods with a write that may have taken effect: what the watch shows of them says nothing of what is needed."""
        self._written: OrderedDict[str, _Written] = OrderedDict()
        self._wake, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def set_condition(self, pod: Pod, reason: str, message: str, nominated: str | None = None) -> bool:
        """Wish PodScheduled=False with ``reason`` and ``message``; ``nominated``: None keeps it, "" clears it.

        False when that says nothing new: the Pod says it already, or it waits to be written.
        """
        if nominated == pod.status.nominatedNodeName and not self._nominating(pod.uid):
            nominated = None
        return self._wish(_Wish(pod, reason, message, nominated))

    def nominate(self, pod: Pod, node_name: str) -> None:
        """Wish nominatedNodeName; "" clears it. A condition that waits to be written is written with it."""
        waiting = self._wishes.get(pod.uid)
        if waiting is not None and waiting.reason is not None:
            self._wish(msgspec.structs.replace(waiting, nominated=node_name))
        elif node_name != pod.status.nominatedNodeName or self._nominating(pod.uid):
            self._wish(_Wish(pod, None, "", node_name))

    def _nominating(self, pod_uid: str) -> bool:
        """True while the Pod as the watch shows it may lack a nomination that is being written or has just been."""
        waiting, written = self._wishes.get(pod_uid), self._written.get(pod_uid)
        return (
            pod_uid in self._busy
            or (waiting is not None and waiting.nominated is not None)
            or (written is not None and written.said.nominated is not None)
        )

    def forget(self, pod_uid: str) -> None:
        """The Pod is bound or gone: whatever waits to be said about it is no longer true."""
        self._wishes.pop(pod_uid, None)
        self._written.pop(pod_uid, None)
        self._doubtful.discard(pod_uid)
        if pod_uid in self._busy:
            self._dropped.add(pod_uid)

    @property
    def waiting(self) -> int:
        """Pods whose status waits to be written."""
        return len(self._wishes)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    async def drain(self, timeout_s: float) -> bool:
        """Wait until every wish is written; False when ``timeout_s`` passed first. For a graceful stop."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def _wish(self, wish: _Wish) -> bool:
        uid = wish.pod.uid
        waiting = self._wishes.get(uid)
        if waiting is not None:
            wish = _nominated_as(wish, waiting)
        if uid not in self._busy and uid not in self._doubtful and self._needless(wish):
            self._wishes.pop(uid, None)
            return False
        self._wishes[uid] = wish
        self._idle.clear()
        self._wake.set()
        return waiting is None or not waiting.same(wish)

    def _needless(self, wish: _Wish) -> bool:
        """True when the Pod says so already, or when we wrote it and the watch has not brought it back yet."""
        pod = wish.pod
        written = self._written.get(pod.uid)
        if written is not None and _version(pod.metadata) < written.version:
            return written.said == wish.said()
        if wish.nominated is not None and wish.nominated != pod.status.nominatedNodeName:
            return False
        if wish.reason is None:
            return True
        condition = pod_scheduled(pod)
        return (
            condition is not None
            and (condition.status, condition.reason, condition.message) == ("False", wish.reason, wish.message)
            and (condition.observedGeneration or 0) == pod.metadata.generation
        )

    async def _work(self) -> None:
        while True:
            wish = self._next()
            if wish is None:
                if not self._wishes and not self._busy:
                    self._idle.set()
                self._wake.clear()
                await self._wake.wait()
                continue
            uid = wish.pod.uid
            self._busy.add(uid)
            try:
                await self._write(wish)
            finally:
                self._busy.discard(uid)
                self._dropped.discard(uid)
                self._wake.set()

    def _next(self) -> _Wish | None:
        """The oldest wish of a Pod nobody writes at the moment."""
        while True:
            uid = next((uid for uid in self._wishes if uid not in self._busy), None)
            if uid is None:
                return None
            wish = self._wishes.pop(uid)
            if uid in self._doubtful or not self._needless(wish):
                self._doubtful.discard(uid)
                return wish

    async def _write(self, wish: _Wish) -> None:
        pod = wish.pod
        path = POD.path(pod.metadata.namespace, pod.metadata.name, "status")
        body = self._body(wish)
        away = Backoff(self._rng, first_s=0.1, max_s=AWAY_PAUSE_MAX_S, jitter=RETRY_JITTER)
        attempt = 0
        for _ in range(AWAY_TRIES_MAX):
            if pod.uid in self._dropped:
                return
            try:
                answer = await self._client.call("PATCH", path, body, STRATEGIC_MERGE_PATCH)
                self._remember(wish, answer.body)
                return
            except (NotFound, NotLeading):
                return  # the Pod is gone, or we are no longer asked
            except (Conflict, AnswerLost) as error:
                attempt += 1
                if self._overtaken(wish) or attempt == TRIES_MAX:
                    self._failed(error)
                    return
                pause_s = RETRY_FIRST_S * RETRY_FACTOR ** (attempt - 1)
                await self._sleep(pause_s * (1.0 + RETRY_JITTER * self._rng.random()))
            except (ServerError, ApiUnavailable, TooManyRequests) as error:
                # Unsaid, the Pod would wait without a word until its next attempt, which may be minutes away.
                self._failed(error)
                if self._overtaken(wish):
                    return
                await self._sleep(away.next_s())
            except ClusterError as error:
                if not (isinstance(error, Invalid) and "metadata.uid" in error.message):  # else another Pod's by now
                    self._failed(error)
                return

    def _overtaken(self, wish: _Wish) -> bool:
        """True when a newer wish waits, which then says what ``wish`` said of the nomination, too."""
        uid = wish.pod.uid
        newer = self._wishes.get(uid)
        if newer is None:
            return False
        if uid not in self._dropped:
            self._wishes[uid] = _nominated_as(newer, wish)
        self._doubtful.add(uid)
        return True

    def _failed(self, error: ClusterError) -> None:
        self.failures += 1
        self._on_trouble(f"a Pod's status was not written: {error}")

    def _body(self, wish: _Wish) -> bytes:
        if wish.reason is None:
            return pod_nomination_patch(wish.pod, wish.nominated or "")
        condition = pod_scheduled(wish.pod)
        changes = condition is None or condition.status != "False"
        return pod_condition_patch(
            wish.pod, wish.reason, wish.message, self._now() if changes else None, wish.nominated
        )

    def _remember(self, wish: _Wish, body: bytes) -> None:
        try:
            version = _version(_ANSWER.decode(body).metadata)
        except msgspec.DecodeError:
            return
        if wish.pod.uid in self._dropped:
            return  # forgotten while it was written
        self._written[wish.pod.uid] = _Written(wish.said(), version)
        self._written.move_to_end(wish.pod.uid)
        if len(self._written) > REMEMBERED_MAX:
            self._written.popitem(last=False)


def _version(meta: ObjectMeta) -> int:
    return revision_of(meta.resourceVersion) or 0
