"""Claims that we make ourselves for a Pod's extended resources, and the Pod's status that tells the kubelet of them.

Source: kube-scheduler 1.37, DynamicResources PreBind and Unreserve (dra spec 5, 18.6). Unlike upstream the random end
of a claim's name is drawn here and not by the server: so a creation whose answer was lost can be repeated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from scheduler.api import bodies
from scheduler.api.core import Pod
from scheduler.api.kinds import POD, RESOURCE_CLAIM, DecodeError, Kind, decode
from scheduler.api.resource import ResourceClaim
from scheduler.dra.extended import special_owner
from scheduler.edge.backoff import read_back
from scheduler.edge.claim_errors import ClaimConflictError, ClaimGoneError, ClaimUnknownError
from scheduler.edge.claims import ClaimWriter
from scheduler.edge.client import RETRY_FACTOR, RETRY_FIRST_S, RETRY_JITTER, TRIES_MAX, ApiClient, Sleep
from scheduler.edge.errors import AnswerLost, ApiError, Conflict, NotFound, ServerError
from scheduler.errors import ClusterError
from scheduler.framework.instructions import PatchPodStatus

NAME_MAX, SUFFIX_LENGTH = 63, 5
CREATE_TRIES_MAX = 8
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class PodClaims:
    """Creates and deletes such claims. ``on_created`` is told "success" or "failure" of each creation.

    Every method raises ClaimError, ApiError, ApiUnavailable or NotLeading.
    """

    def __init__(
        self,
        client: ApiClient,
        writer: ClaimWriter,
        *,
        kind: Kind = RESOURCE_CLAIM,
        on_created: Callable[[str], None] = lambda status: None,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._client, self._writer, self._kind, self._on_created = client, writer, kind, on_created
        self._sleep, self._rng = sleep, rng or random.Random()

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Create ``claim``, whose name is the beginning of the real one; the stored claim.

        Cost: one write. A lost answer is read back; a name that somebody else has is drawn anew.
        """
        try:
            created = await self._create(claim)
        except ClusterError:
            self._on_created("failure")
            raise
        self._on_created("success")
        return created

    async def _create(self, claim: ResourceClaim) -> ResourceClaim:
        name = self._draw(claim)
        path = self._kind.path(claim.metadata.namespace)
        problem: ClusterError | None = None
        for _ in range(CREATE_TRIES_MAX):
            try:
                body = bodies.claim_body(self._kind, claim, name)
                return self._decoded(claim, (await self._client.call("POST", path, body)).body)
            except Conflict as error:
                found, problem = await self._find(claim, name), error
                if found is not None and special_owner(found) == special_owner(claim):
                    return found
                name = self._draw(claim)
            except (AnswerLost, ServerError) as error:
                found, problem = await self._find(claim, name), error
                if found is not None:
                    return found
            except ApiError as error:
                error.args = (f"create claim for extended resources {claim.key}: {error}",)
                raise
        raise ClaimConflictError(claim.key, f"create claim for extended resources {claim.key}: {problem}")

    async def delete(self, claim: ResourceClaim) -> None:
        """Take our finalizer off and delete the claim, whatever it holds; done when it is gone. Idempotent."""
        try:
            now = await self._writer.release(claim)
        except ClaimGoneError:
            return
        path = self._kind.path(now.metadata.namespace, now.metadata.name)
        lost: ClusterError | None = None
        for _ in range(TRIES_MAX):
            try:
                await self._client.call("DELETE", path, bodies.delete_options(now.uid))
                return
            except NotFound:
                return
            except Conflict as error:
                found = await self._find(now, now.metadata.name)
                if found is None or found.uid != now.uid:
                    return
                lost = error
            except (AnswerLost, ServerError) as error:
                lost = error
        raise ClaimUnknownError(claim.key, f"delete resourceclaim {claim.key}: {lost}")

    async def patch_status(self, instruction: PatchPodStatus) -> None:
        """Merge fields into a Pod's status; repeated on conflicts and lost answers, 4 tries in all."""
        pod: Pod = instruction.pod
        path = POD.path(pod.metadata.namespace, pod.metadata.name, "status")
        body = bodies.pod_status_patch(pod, instruction.status())
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._client.call("PATCH", path, body, bodies.MERGE_PATCH)
                return
            except (Conflict, AnswerLost) as error:
                if attempt == TRIES_MAX:
                    error.args = (f"{instruction.doing}: {error}",)
                    raise
            except ApiError as error:
                error.args = (f"{instruction.doing}: {error}",)
                raise
            pause_s = RETRY_FIRST_S * RETRY_FACTOR ** (attempt - 1)
            await self._sleep(pause_s * (1.0 + RETRY_JITTER * self._rng.random()))

    def _draw(self, claim: ResourceClaim) -> str:
        suffix = "".join(self._rng.choice(_LETTERS) for _ in range(SUFFIX_LENGTH))
        return claim.metadata.name[: NAME_MAX - SUFFIX_LENGTH] + suffix

    async def _find(self, claim: ResourceClaim, name: str) -> ResourceClaim | None:
        """What is stored under a name, None when nothing is."""
        path = self._kind.path(claim.metadata.namespace, name)

        async def once() -> ResourceClaim:
            return self._decoded(claim, (await self._client.call("GET", path)).body)

        try:
            return await read_back(once, self._sleep, self._rng)
        except NotFound:
            return None
        except (AnswerLost, ServerError) as error:
            text = f"reading claim {claim.metadata.namespace}/{name} back: {error}"
            raise ClaimUnknownError(claim.key, text) from error

    def _decoded(self, claim: ResourceClaim, body: bytes) -> ResourceClaim:
        try:
            decoded: ResourceClaim = decode(self._kind, body)
        except DecodeError as error:
            raise AnswerLost(f"the answer is no claim: {error}") from error
        if not decoded.uid:
            raise AnswerLost(f"the answer is not claim {claim.key}")
        return decoded
