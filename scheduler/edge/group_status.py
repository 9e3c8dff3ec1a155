"""Says on a PodGroup whether it has been scheduled: the condition PodGroupInitiallyScheduled.

Written beside the loop, newest wish first; a wish that says what was written last costs nothing, and True is final
(kube-scheduler 1.37, spec 3.19).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from scheduler.api.bodies import STRATEGIC_MERGE_PATCH, pod_group_condition_patch
from scheduler.api.meta import Condition
from scheduler.api.podgroups import PodGroup
from scheduler.edge.client import ApiClient
from scheduler.edge.errors import NotFound
from scheduler.edge.times import rfc3339_now
from scheduler.errors import SchedulerError

INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"
SCHEDULED, UNSCHEDULABLE, SCHEDULER_ERROR = "Scheduled", "Unschedulable", "SchedulerError"
REMEMBERED_MAX = 10_000


class GroupStatusWriter:
    """``set_condition`` only notes the wish; a task of its own writes it."""

    def __init__(
        self,
        client: ApiClient,
        *,
        now: Callable[[], str] = rfc3339_now,
        on_trouble: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._client, self._now, self._on_trouble = client, now, on_trouble
        self._wishes: dict[str, tuple[PodGroup, Condition]] = {}
        self._written: OrderedDict[str, Condition] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    def set_condition(self, group: PodGroup, reason: str, message: str) -> None:
        """Wish the condition: True for SCHEDULED, False for the others. Call it in the event loop."""
        status = "True" if reason == SCHEDULED else "False"
        wish = Condition(
            INITIALLY_SCHEDULED, status, reason, message, observedGeneration=group.metadata.generation or None
        )
        known = self._known(group)
        if known is not None and (known.status == "True" or _says(known) == _says(wish)):
            self._wishes.pop(group.metadata.uid, None)
            return
        self._wishes[group.metadata.uid] = (group, wish)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_all())

    def _known(self, group: PodGroup) -> Condition | None:
        """What was written last; before that, what the group shows."""
        written = self._written.get(group.metadata.uid)
        if written is not None:
            return written
        return next((found for found in group.status.conditions if found.type == INITIALLY_SCHEDULED), None)

    async def _write_all(self) -> None:
        while self._wishes:
            uid = next(iter(self._wishes))
            group, wish = self._wishes.pop(uid)
            known = self._known(group)
            same = known is not None and known.status == wish.status
            since = known.lastTransitionTime if same and known is not None else None
            wish = msgspec.structs.replace(wish, lastTransitionTime=since or self._now())
            path = (
                f"/apis/scheduling.k8s.io/v1beta1/namespaces/{group.metadata.namespace}"
                f"/podgroups/{group.metadata.name}/status"
            )
            try:
                await self._client.call("PATCH", path, pod_group_condition_patch(uid, wish), STRATEGIC_MERGE_PATCH)
            except NotFound:
                continue
            except SchedulerError as error:  # the group's next cycle says it again
                self._on_trouble(f"the condition of PodGroup {group.metadata.key} was not written: {error}")
                continue
            self._written[uid] = wish
            self._written.move_to_end(uid)
            if len(self._written) > REMEMBERED_MAX:
                self._written.popitem(last=False)

    async def drain(self, timeout_s: float) -> None:
        """Wait until everything wished is written, ``timeout_s`` at most."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=timeout_s)

    async def close(self) -> None:
        """Write no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _says(condition: Condition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message
