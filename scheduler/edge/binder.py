"""Binds Pods: one POST to pods/binding, and the truth about what became of it.

201 is success whatever the body says. After a conflict or a lost answer the Pod is read: what counts is where it is.
Source: kube-scheduler 1.37, DefaultBinder; the answers of the binding sub-resource.
"""

from __future__ import annotations

import asyncio
import math
import random

from scheduler.api.bodies import binding_body
from scheduler.api.core import Pod
from scheduler.api.kinds import POD, DecodeError, decode
from scheduler.edge.backoff import read_back
from scheduler.edge.client import ApiClient, Sleep
from scheduler.edge.errors import AnswerLost, Conflict, NotFound, ServerError
from scheduler.errors import ClusterError

TRIES_MAX = 4
RETRY_FIRST_S, RETRY_FACTOR, RETRY_JITTER = 0.010, 5.0, 0.1


class BindError(ClusterError):
    """A Pod was not bound by us. ``pod`` is ``namespace/name``."""

    lost_race = False
    pod_gone = False

    def __init__(self, pod: str, text: str) -> None:
        self.pod = pod
        super().__init__(text)


class BoundElsewhereError(BindError):
    """Somebody else bound the Pod to another node, ``node_name``: a lost race."""

    lost_race = True

    def __init__(self, pod: str, node_name: str) -> None:
        self.node_name = node_name
        super().__init__(pod, f"pod {pod} is already assigned to node {node_name}")


class PodGoneError(BindError):
    """The Pod is gone, being deleted, or replaced by another one of its name: drop it silently."""

    pod_gone = True


class PodGatedError(BindError):
    """Scheduling gates were added (possible only before ours was seen): the Pod is not ready."""


class BindUnknownError(BindError):
    """The Binding may have taken effect, and reading back failed too. Count it as done until the watch tells."""


class Binder:
    """Binds Pods. ``sleep`` and ``rng`` serve the pauses between tries."""

    def __init__(self, client: ApiClient, *, sleep: Sleep = asyncio.sleep, rng: random.Random | None = None) -> None:
        self._client, self._sleep, self._rng = client, sleep, rng or random.Random()

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Return when ``pod`` is on ``node_name``, whoever put it there.

        Raises BindError, ApiError (refused), ApiUnavailable, NotLeading. Cost: one request when all goes well.
        """
        path = POD.path(pod.metadata.namespace, pod.metadata.name, "binding")
        body = binding_body(pod, node_name)
        lost: ClusterError | None = None
        for attempt in range(TRIES_MAX):
            if attempt:
                pause_s = RETRY_FIRST_S * RETRY_FACTOR ** (attempt - 1)
                await self._sleep(pause_s * (1.0 + RETRY_JITTER * self._rng.random()))
            try:
                await self._client.call("POST", path, body)
                return
            except NotFound as error:
                raise PodGoneError(pod.key, str(error)) from error
            except Conflict as error:
                if self._arrived(pod, node_name, await self._read(pod, error)):
                    return
                raise
            except (AnswerLost, ServerError) as error:
                lost = error
                if self._arrived(pod, node_name, await self._read(pod, error)):
                    return
                if isinstance(error, ServerError) and error.status != 504:
                    raise  # the client has repeated it already, and the Pod is not bound
        raise BindUnknownError(pod.key, str(lost)) from lost

    async def confirm(self, pod: Pod, node_name: str, cause: ClusterError) -> bool:
        """After somebody else's Binding answered with ``cause``: True when ``pod`` is on the node all the same."""
        return self._arrived(pod, node_name, await self._read(pod, cause))

    async def _read(self, pod: Pod, cause: ClusterError) -> Pod:
        """The Pod as it is now, asked for until the server speaks again, however long that takes.

        To give up would mean to undo: a Pod that is bound after all would lose the reservation of its claims.
        """

        async def once() -> Pod:
            answer = await self._client.call("GET", POD.path(pod.metadata.namespace, pod.metadata.name))
            found: Pod = decode(POD, answer.body)
            return found

        try:
            return await read_back(once, self._sleep, self._rng, max_s=math.inf)
        except NotFound as error:
            raise PodGoneError(pod.key, str(cause)) from error
        except (ClusterError, DecodeError) as error:
            raise BindUnknownError(pod.key, f"{cause}; reading pod {pod.key} back: {error}") from error

    @staticmethod
    def _arrived(pod: Pod, node_name: str, found: Pod) -> bool:
        """True when ``found`` is on the node, False when it is nowhere yet; raises when it never will be by us."""
        if found.uid != pod.uid:
            raise PodGoneError(pod.key, f"pod {pod.key} was deleted and created again")
        if found.spec.nodeName == node_name:
            return True
        if found.spec.nodeName:
            raise BoundElsewhereError(pod.key, found.spec.nodeName)
        if found.metadata.deletionTimestamp is not None:
            raise PodGoneError(pod.key, f"pod {pod.key} is being deleted, cannot be assigned to a host")
        if found.spec.schedulingGates:
            raise PodGatedError(pod.key, f"pod {pod.key} has non-empty .spec.schedulingGates")
        return False
