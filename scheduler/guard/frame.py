"""kopf: the frame of the admission server. The only module that imports it.

kopf runs standalone, watches nothing, writes nothing (no peering, no events, no managed webhook configuration: it would
take its webhooks out of the cluster when it ends) and remembers nothing: its memory of reviewed objects is never
cleared, so it gets one that forgets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import kopf
from kopf._core.reactor.inventory import ResourceMemories

from scheduler.api.kinds import DecodeError, Kind, convert
from scheduler.edge.credentials import Access
from scheduler.guard.reviewer import MODES, Answer, Mode
from scheduler.guard.server import AdmissionServer, note_failure

REFUSED_STATUS = 403
"""Not 409: the API server and clients repeat a conflict at once, several times."""

Review = Callable[[Mode, Any, Any, bool], Awaitable[Answer]]
"""(mode, old claim, new claim, dry run) → answer."""


class _Forgetful(ResourceMemories):
    """Remembers no reviewed object."""

    async def recall_memo(self, raw_body: Any, *, memobase: Any = None, ephemeral: bool = False) -> Any:
        return await super().recall_memo(raw_body, memobase=memobase, ephemeral=True)


def quiet_kopf() -> None:
    """Each refusal would be an error in the log; what the guard refuses it tells itself."""
    logging.getLogger("kopf").setLevel(logging.ERROR)
    logging.getLogger("kopf.objects").setLevel(logging.CRITICAL + 1)


async def run_kopf(
    access: Access, kind: Kind, server: AdmissionServer, review: Review, ready: asyncio.Event, stop: asyncio.Event
) -> None:
    """Serve reviews of ``kind``'s status until ``stop`` is set. ``ready`` is set when kopf has started.

    Raises what ended kopf. kopf takes over SIGINT and SIGTERM when it starts: install handlers after ``ready``.
    """
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=access.tls or True), headers=_headers(access), trust_env=False
    ) as session:
        await kopf.operator(
            registry=_registry(access, kind, session, review),
            settings=_settings(server),
            memories=_Forgetful(),
            standalone=True,
            clusterwide=True,
            ready_flag=ready,
            stop_flag=stop,
        )


def _headers(access: Access) -> dict[str, str]:
    authorization = access.authorization()
    return {"Authorization": authorization} if authorization else {}


def _settings(server: AdmissionServer) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.admission.server = server  # type: ignore[assignment]  # its protocol names kopf's own dicts
    settings.admission.managed = None
    return settings


def _registry(access: Access, kind: Kind, session: aiohttp.ClientSession, review: Review) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=access.server, aiohttp_session=session)

    for mode in MODES:

        async def handle(*, dryrun: bool, warnings: list[str], param: Any = None, **cause: Any) -> None:
            try:
                before, after = convert(kind, dict(cause["old"])), convert(kind, dict(cause["new"]))
            except DecodeError as error:
                raise kopf.AdmissionError(f"the claim cannot be read: {error}", code=422) from error
            try:
                answer = await review(param, before, after, dryrun)
            except Exception as error:
                # For kopf every exception is a refusal; the server knows better.
                note_failure(error)
                raise
            if not answer.allowed:
                raise kopf.AdmissionError(answer.text, code=REFUSED_STATUS)
            warnings += [refusal.text for refusal in answer.refusals]

        kopf.on.validate(
            kind.group,
            kind.version,
            kind.plural,
            subresource="status",
            operations=["UPDATE"],
            id=mode,
            param=mode,
            side_effects=True,
            registry=registry,
        )(handle)
    return registry
