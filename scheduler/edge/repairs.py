"""Carries out the doctor's repairs: each checked again right before, bound to what was looked at, dry first."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from scheduler.api import bodies
from scheduler.api.core import Pod
from scheduler.api.deep import decode_deep
from scheduler.api.kinds import POD, DecodeError, Kind, decode
from scheduler.api.podgroups import POD_GROUP
from scheduler.api.resource import ConsumerReference
from scheduler.edge.client import ApiClient
from scheduler.edge.errors import AnswerLost, Conflict, NotFound
from scheduler.edge.lister import LIST_TIMEOUT_S
from scheduler.errors import ClusterError
from scheduler.explain.doctor_facts import Repair, claims_of, is_group, is_pod

DONE, ACCEPTED, LEFT, FAILED = "done", "would be done", "left alone", "failed"


class _Pods(msgspec.Struct):
    items: list[msgspec.Raw] | None  # null for none, never absent: such an answer is no list


_PODS = msgspec.json.Decoder(_Pods)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one repair: ``result`` is DONE, ACCEPTED (a dry run), LEFT or FAILED; ``why`` for the last two.

    ``body``: the patch.
    """

    does: str
    body: str
    result: str
    why: str = ""


class Repairer:
    """Writes for the doctor. ``claim_kind``: resource.k8s.io in the version that the server serves."""

    def __init__(self, client: ApiClient, claim_kind: Kind) -> None:
        self._client, self._kind = client, claim_kind

    async def carry_out(self, repair: Repair, *, dry: bool) -> Outcome:
        """Let the API server check the write without storing it, and unless ``dry`` write. Never raises ClusterError.

        A claim that was touched since it was looked at, or of which a Pod or PodGroup lives after all, is left alone;
        so is a claim in whose namespace a Pod cannot be read. The claim is read back when the answer to the write was
        lost. Cost: a LIST of the namespace's Pods, a GET of the claim, one per reservation, two PATCHes.
        """
        try:
            why = await self._why_not(repair)
            if why:
                return Outcome(repair.does, repair.body, LEFT, why)
            await self._write(repair, dry=True)
        except AnswerLost as error:  # nothing was to be stored yet
            return Outcome(repair.does, repair.body, FAILED, str(error))
        except (ClusterError, DecodeError) as error:
            return self._refused(repair, error)
        if dry:
            return Outcome(repair.does, repair.body, ACCEPTED)
        try:
            await self._write(repair, dry=False)
        except AnswerLost as error:
            return await self._read_back(repair, str(error))
        except (ClusterError, DecodeError) as error:
            return self._refused(repair, error)
        return Outcome(repair.does, repair.body, DONE)

    @staticmethod
    def _refused(repair: Repair, error: Exception) -> Outcome:
        if isinstance(error, NotFound | Conflict):
            return Outcome(repair.does, repair.body, LEFT, f"changed meanwhile: {error}")
        return Outcome(repair.does, repair.body, FAILED, str(error))

    async def _why_not(self, repair: Repair) -> str:
        """Why the claim must be left alone, "" when it may be written."""
        for one in repair.nobody:
            if not (is_pod(one) or is_group(one)):
                return f"it cannot be looked up whether {one.resource} {one.name} uses it"
            if await self._lives(repair.namespace, one):
                return f"{'Pod' if is_pod(one) else 'PodGroup'} {repair.namespace}/{one.name} uses it"
        try:
            pods = await self._pods(repair.namespace)
        except (DecodeError, msgspec.DecodeError) as error:
            return f"a Pod of its namespace may use it and cannot be read: {error}"
        for pod in pods:
            if _uses(pod, repair):
                return f"Pod {pod.key} uses it"
        if await self._version(repair) != (repair.uid, repair.version):
            return "the claim has been changed since it was looked at"
        return ""

    async def _lives(self, namespace: str, consumer: ConsumerReference) -> bool:
        kind = POD if is_pod(consumer) else POD_GROUP
        try:
            answer = await self._client.call("GET", kind.path(namespace, consumer.name))
        except NotFound:
            return False
        found = decode(kind, answer.body)
        return found.metadata.uid == consumer.uid and not (isinstance(found, Pod) and found.terminal)

    async def _pods(self, namespace: str) -> list[Pod]:
        """All Pods of a namespace as they are now, in one answer: pages may expire."""
        answer = await self._client.call("GET", POD.path(namespace), timeout_s=LIST_TIMEOUT_S)
        return [decode(POD, raw) for raw in decode_deep(_PODS, answer.body).items or ()]

    async def _version(self, repair: Repair) -> tuple[str, str]:
        answer = await self._client.call("GET", self._kind.path(repair.namespace, repair.name))
        claim = decode(self._kind, answer.body)
        return claim.uid, claim.metadata.resourceVersion

    async def _write(self, repair: Repair, *, dry: bool) -> None:
        path = self._kind.path(repair.namespace, repair.name, repair.subresource)
        query = {"dryRun": "All"} if dry else None
        await self._client.call("PATCH", path, repair.body.encode(), bodies.MERGE_PATCH, query=query)

    async def _read_back(self, repair: Repair, why: str) -> Outcome:
        try:
            now = await self._version(repair)
        except NotFound:
            return Outcome(repair.does, repair.body, DONE)
        except (ClusterError, DecodeError):
            return Outcome(repair.does, repair.body, FAILED, f"unknown whether it was written: {why}")
        if now == (repair.uid, repair.version):
            return Outcome(repair.does, repair.body, FAILED, why)
        return Outcome(
            repair.does,
            repair.body,
            FAILED,
            f"the claim has changed, perhaps by this write; run the doctor again: {why}",
        )


def _uses(pod: Pod, repair: Repair) -> bool:
    """Whether a Pod has the claim that is to be taken from it, by reservation or by running with it."""
    if pod.terminal:
        return False
    reserved = any(is_pod(one) and one.uid == pod.uid for one in repair.nobody)
    return reserved or (repair.frees and bool(pod.spec.nodeName) and repair.name in claims_of(pod))
