"""Questions to the running scheduler over HTTP: explain, inventory, lint, the map, the Pods that wait.

Every caller shows a bearer token, from loopback too (port-forwards arrive from there); what they may not list is
hidden or left out of the answer. Only GET, only JSON. Paths begin with ``PREFIX``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import isnan, nan
from typing import Any, Protocol

import msgspec
from aiohttp import web

from scheduler.api.bodies import ResourceAttributes, ReviewedUser
from scheduler.audit.redacted import redacted
from scheduler.audit.stories import SUBJECTS, Story, story_lines
from scheduler.edge.asking import TooBusyError
from scheduler.edge.callers import Reviews, UnansweredError
from scheduler.edge.times import rfc3339
from scheduler.errors import ClusterError, UserError
from scheduler.explain.cluster_map import WaitingPods
from scheduler.explain.inventory import GROUPINGS
from scheduler.explain.redaction import (
    mentioned,
    redact_waiting,
)
from scheduler.explain.sight import Names, Sight, Told, scrubber

PREFIX = "/questions/v1"
NAMESPACES_MAX = 500
"""Namespaces of one answer for which a caller's rights are asked; names from further ones are hidden."""
RETRY_AFTER_S = 2
LIMIT_MAX = 5_000
NAME_MAX = 253
_DEVICES = "resource.k8s.io"

Reply = dict[str, Any] | bytes
"""The keys of an answer beside ``now``; bytes: as a JSON object that is not empty."""
Stories = Callable[[str, str, tuple[float, float]], Awaitable[tuple[Names, Story]]]
"""What is on record about a subject (kind of ``audit.stories.SUBJECTS``, name) in a window of Unix seconds; with every
name there is. Raises UserError without a record.
"""
ALWAYS = (0.0, float("inf"))


class Answering(Protocol):
    """Who answers. Raises UserError for what does not exist, ClusterError and TooBusyError for not now."""

    def clock(self) -> float: ...
    async def explain(self, namespace: str, name: str, hints: bool = True, keep: bool = False) -> Told: ...
    async def inventory(self, by: str, keep: bool = False) -> Told: ...
    async def lint(self, keep: bool = False) -> Told: ...
    async def cluster_map(self, match: str, limit: int, keep: bool = False) -> Told: ...
    async def waiting(self, limit: int) -> WaitingPods: ...
    async def redacted(self, told: Told, sight: Sight) -> bytes: ...
    async def close(self) -> None: ...


@dataclass(slots=True)
class _RefusedError(Exception):
    """Ends a request with a Status, as the API server words it."""

    code: int
    reason: str
    message: str


def no_record(question: str, code: int) -> None:
    """For who counts nothing."""


class Questions:
    """The handlers; ``mount`` adds them to an application. ``on_answer`` is told each question and its HTTP code.

    ``on_trouble`` gets a sentence about an answer that could not be found.
    """

    def __init__(
        self,
        answers: Answering,
        reviews: Reviews,
        stories: Stories | None = None,
        on_answer: Callable[[str, int], None] = no_record,
        on_trouble: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._answers, self._reviews, self._stories = answers, reviews, stories
        self._on_answer, self._on_trouble = on_answer, on_trouble

    def mount(self, app: web.Application) -> None:
        """Add the routes; with the application the answering ends."""

        async def ended(app: web.Application) -> None:
            await self._answers.close()

        app.on_cleanup.append(ended)
        add = app.router.add_get
        add(f"{PREFIX}/namespaces/{{namespace}}/pods/{{name}}/explanation", self._served("explanation", self._explain))
        add(f"{PREFIX}/namespaces/{{namespace}}/pods/{{name}}/story", self._served("story", self._story))
        add(f"{PREFIX}/record", self._served("record", self._record))
        add(f"{PREFIX}/inventory", self._served("inventory", self._inventory))
        add(f"{PREFIX}/lint", self._served("lint", self._lint))
        add(f"{PREFIX}/map", self._served("map", self._map))
        add(f"{PREFIX}/pods", self._served("pods", self._waiting))
        add(f"{PREFIX}/me", self._served("me", self._me))

    def _served(
        self, question: str, handler: Callable[[web.Request, ReviewedUser], Awaitable[Reply]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Who asks, then the answer or the refusal as JSON."""

        async def serve(request: web.Request) -> web.Response:
            answer = await answered(request)
            self._on_answer(question, answer.status)
            return answer

        async def answered(request: web.Request) -> web.Response:
            try:
                told = await handler(request, await self._user(request))
                whole = told if isinstance(told, bytes) else msgspec.json.encode(told)
                return _json(200, b'{"now":%b,%b' % (msgspec.json.encode(self._answers.clock()), whole[1:]))
            except _RefusedError as refusal:
                return _reply(refusal.code, _status(refusal))
            except UnansweredError:
                return _unavailable("the API server could not be asked who you are and what you may see")
            except TooBusyError as error:
                return _unavailable(str(error), "TooManyRequests")
            except UserError as error:
                return _reply(404, _status(_RefusedError(404, "NotFound", str(error))))
            except ClusterError as error:
                return _unavailable(str(error))
            except Exception as error:  # our bug; its text may name what the caller may not see
                self._on_trouble(f"question {question}: {type(error).__name__}: {error}")
                return _reply(
                    500, _status(_RefusedError(500, "InternalError", "no answer: the scheduler's log tells why"))
                )

        return serve

    async def _user(self, request: web.Request) -> ReviewedUser:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        user = await self._reviews.user(token.strip() if scheme.lower() == "bearer" else "")
        if user is None:
            raise _RefusedError(401, "Unauthorized", "a bearer token of the cluster is needed")
        return user

    # the questions

    async def _me(self, request: web.Request, user: ReviewedUser) -> Reply:
        return {"answer": {"user": user.username}}

    async def _explain(self, request: web.Request, user: ReviewedUser) -> Reply:
        namespace, name = _name(request, "namespace"), _name(request, "name")
        # Before anything is looked up: who may not get the Pod does not learn whether it exists.
        await self._need(user, ResourceAttributes("get", "pods", "", namespace, name))
        hints = request.query.get("hints") != "false"
        return await self._seen(user, partial(self._answers.explain, namespace, name, hints))

    async def _story(self, request: web.Request, user: ReviewedUser) -> Reply:
        namespace, name = _name(request, "namespace"), _name(request, "name")
        await self._need(user, ResourceAttributes("get", "pods", "", namespace, name))
        names, told = await self._told("pod", f"{namespace}/{name}", ALWAYS)
        lines = story_lines(told, rfc3339, lambda style, text: text)
        sight = await self._sight(user, mentioned(lines, names.spaces))
        seen = lines if sight.everything else scrubber(sight, names).tree(lines)
        return {"answer": {"lines": seen}}

    async def _record(self, request: web.Request, user: ReviewedUser) -> Reply:
        """The same as data, about a Pod, a claim, a device or a node, also when it is gone."""
        kind, name = request.query.get("kind", ""), request.query.get("name", "")
        await self._need(user, _right_to(kind, name))
        names, told = await self._told(kind, name, (_moment(request, "since"), _moment(request, "until")))
        sight = await self._sight(user, mentioned(told, names.spaces))
        return {"answer": told if sight.everything else redacted(told, scrubber(sight, names).text)}

    async def _told(self, kind: str, name: str, window: tuple[float, float]) -> tuple[Names, Story]:
        if self._stories is None:
            raise UserError("audit trail", "", "this scheduler keeps none")
        return await self._stories(kind, name, window)

    async def _inventory(self, request: web.Request, user: ReviewedUser) -> Reply:
        by = request.query.get("by", "model")
        if by not in GROUPINGS:
            raise _RefusedError(400, "BadRequest", f"by: {by[:40]!r} is none of {', '.join(GROUPINGS)}")
        return await self._seen(user, partial(self._answers.inventory, by))

    async def _lint(self, request: web.Request, user: ReviewedUser) -> Reply:
        return await self._seen(user, self._answers.lint)

    async def _map(self, request: web.Request, user: ReviewedUser) -> Reply:
        sight = await self._sight(user, ())
        match = request.query.get("match", "")[:NAME_MAX]
        # A search in names is an answer about names: only for those who may list them.
        allowed = match if sight.nodes else ""
        return await self._seen(user, partial(self._answers.cluster_map, allowed, _limit(request, 200)))

    async def _waiting(self, request: web.Request, user: ReviewedUser) -> Reply:
        found = await self._answers.waiting(LIMIT_MAX)
        wanted = request.query.get("namespace", "")
        if wanted:
            pods = [pod for pod in found.pods if pod.pod.startswith(f"{wanted}/")]
            found = WaitingPods(pods, len(pods))
        sight = await self._sight(user, {pod.pod.partition("/")[0] for pod in found.pods})
        return {"answer": redact_waiting(found, sight, _limit(request, 500))}

    # rights

    async def _need(self, user: ReviewedUser, asked: ResourceAttributes) -> None:
        if not await self._reviews.allowed(user, asked):
            where = f' in the namespace "{asked.namespace}"' if asked.namespace else " at the cluster scope"
            named = f' "{asked.name}"' if asked.name else ""
            text = f'{asked.resource}{named} is forbidden: User "{user.username}" cannot {asked.verb} resource '
            text += f'"{asked.resource}" in API group "{asked.group}"{where}'
            raise _RefusedError(403, "Forbidden", text)

    async def _seen(self, user: ReviewedUser, ask: Callable[..., Awaitable[Told]]) -> Reply:
        """The reply for who may see everything; for others what may be seen of it."""
        if (await self._sight(user, ())).everything:
            return (await ask()).whole
        told = await ask(keep=True)
        return await self._answers.redacted(told, await self._sight(user, told.spaces))

    async def _sight(self, user: ReviewedUser, namespaces: Iterable[str]) -> Sight:
        """What the caller may list; where not everything, in each of ``namespaces``."""

        async def may(resource: str, group: str = _DEVICES, namespace: str = "") -> bool:
            return await self._reviews.allowed(user, ResourceAttributes("list", resource, group, namespace))

        nodes, slices, classes, rules, spaces, pods, claims, templates = await asyncio.gather(
            may("nodes", ""),
            may("resourceslices"),
            may("deviceclasses"),
            may("devicetaintrules"),
            may("namespaces", ""),
            may("pods", ""),
            may("resourceclaims"),
            may("resourceclaimtemplates"),
        )
        asked = sorted(namespaces)[:NAMESPACES_MAX]

        async def within(everywhere: bool, resource: str, group: str) -> frozenset[str] | None:
            if everywhere:
                return None
            allowed = await asyncio.gather(*(may(resource, group, namespace) for namespace in asked))
            return frozenset(name for name, yes in zip(asked, allowed, strict=True) if yes)

        return Sight(
            nodes,
            slices,
            classes,
            rules,
            spaces,
            await within(pods, "pods", ""),
            await within(claims, "resourceclaims", _DEVICES),
            await within(templates, "resourceclaimtemplates", _DEVICES),
        )


def _name(request: web.Request, part: str) -> str:
    name = request.match_info[part]
    if not name or len(name) > NAME_MAX or not name.isascii() or not name.isprintable():
        raise _RefusedError(400, "BadRequest", f"{part}: not a name")
    return name


def _right_to(kind: str, name: str) -> ResourceAttributes:
    """What a caller must be allowed to learn what is on record about a subject, whether it exists or not."""
    namespace, slash, rest = name.partition("/")
    if not name or len(name) > 4 * NAME_MAX or not name.isascii() or not name.isprintable():
        raise _RefusedError(400, "BadRequest", "name: not a name")
    if kind == "node":
        return ResourceAttributes("get", "nodes", "", "", name)
    if kind == "device":  # published by a slice; the record does not tell which
        return ResourceAttributes("list", "resourceslices", _DEVICES)
    if kind not in SUBJECTS:
        raise _RefusedError(400, "BadRequest", f"kind: {kind[:40]!r} is none of {', '.join(SUBJECTS)}")
    if not slash or not rest:
        raise _RefusedError(400, "BadRequest", "name: not NAMESPACE/NAME")
    if kind == "pod":
        return ResourceAttributes("get", "pods", "", namespace, rest)
    return ResourceAttributes("get", "resourceclaims", _DEVICES, namespace, rest)


def _moment(request: web.Request, end: str) -> float:
    """Unix seconds; without any the end is open."""
    text = request.query.get(end, "")
    if not text:
        return ALWAYS[end == "until"]
    try:
        moment = float(text)
    except ValueError:
        moment = nan
    if isnan(moment):
        raise _RefusedError(400, "BadRequest", f"{end}: {text[:20]!r} is no number of seconds")
    return moment


def _limit(request: web.Request, usual: int) -> int:
    text = request.query.get("limit", str(usual))
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise _RefusedError(400, "BadRequest", f"limit: {text[:20]!r} is no number")
    return max(1, min(int(text), LIMIT_MAX))


def _status(refusal: _RefusedError) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": refusal.message,
        "reason": refusal.reason,
        "code": refusal.code,
    }


def _unavailable(message: str, reason: str = "ServiceUnavailable") -> web.Response:
    answer = _reply(503, _status(_RefusedError(503, reason, message)))
    answer.headers["Retry-After"] = str(RETRY_AFTER_S)
    return answer


def _reply(code: int, body: Any) -> web.Response:
    return _json(code, msgspec.json.encode(body))


def _json(code: int, body: bytes) -> web.Response:
    answer = web.Response(status=code, body=body, content_type="application/json")
    answer.headers.update({"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})
    if code == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    if code == 200:
        answer.enable_compression()
    return answer
