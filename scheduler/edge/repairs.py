"""Carries out the doctor's repairs: each checked again right before, bound to what was looked at, dry first."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.api import bodies
from scheduler.api.kinds import POD, DecodeError, Kind, decode
from scheduler.edge.client import ApiClient
from scheduler.edge.errors import AnswerLost, Conflict, NotFound
from scheduler.errors import ClusterError
from scheduler.explain.doctor_facts import Repair

DONE, ACCEPTED, LEFT, FAILED = "done", "would be done", "left alone", "failed"


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

        A claim that was touched since it was looked at, or a Pod of it that lives after all, is left alone. The claim
        is read back when the answer to the write was lost. Cost: a GET of the claim, one per reservation, two PATCHes.
        """
        try:
            why = await self._why_not(repair)
            if why:
                return Outcome(repair.does, repair.body, LEFT, why)
            await self._write(repair, dry=True)
            if not dry:
                await self._write(repair, dry=False)
        except (NotFound, Conflict) as error:
            return Outcome(repair.does, repair.body, LEFT, f"changed meanwhile: {error}")
        except AnswerLost as error:
            return await self._read_back(repair, dry, str(error))
        except (ClusterError, DecodeError) as error:
            return Outcome(repair.does, repair.body, FAILED, str(error))
        return Outcome(repair.does, repair.body, ACCEPTED if dry else DONE)

    async def _why_not(self, repair: Repair) -> str:
        """Why the claim must be left alone, "" when it may be written."""
        for name, uid in repair.nobody:
            if await self._lives(repair.namespace, name, uid):
                return f"Pod {repair.namespace}/{name} uses it"
        if await self._version(repair) != (repair.uid, repair.version):
            return "the claim has been changed since it was looked at"
        return ""

    async def _lives(self, namespace: str, name: str, uid: str) -> bool:
        try:
            answer = await self._client.call("GET", POD.path(namespace, name))
        except NotFound:
            return False
        pod = decode(POD, answer.body)
        return bool(pod.uid == uid and not pod.terminal)

    async def _version(self, repair: Repair) -> tuple[str, str]:
        answer = await self._client.call("GET", self._kind.path(repair.namespace, repair.name))
        claim = decode(self._kind, answer.body)
        return claim.uid, claim.metadata.resourceVersion

    async def _write(self, repair: Repair, *, dry: bool) -> None:
        path = self._kind.path(repair.namespace, repair.name, repair.subresource)
        query = {"dryRun": "All"} if dry else None
        await self._client.call("PATCH", path, repair.body.encode(), bodies.MERGE_PATCH, query=query)

    async def _read_back(self, repair: Repair, dry: bool, why: str) -> Outcome:
        if dry:
            return Outcome(repair.does, repair.body, FAILED, why)
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
