"""HTTP: from a request to the registry and back. The only module here that knows aiohttp's request and response.

One handler for every path; each request is matched against the fault plan first and written into the audit last.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from scheduler.embedded import discovery
from scheduler.embedded.calls import call_of, delete_options, parse_body, truth, verb_of
from scheduler.embedded.faults import STREAM_ACTIONS, Action, Audit, Call, Fault, FaultPlan
from scheduler.embedded.kinds import Kind
from scheduler.embedded.listing import Page, page, parse_revision
from scheduler.embedded.paths import Target, parse
from scheduler.embedded.registry import Registry
from scheduler.embedded.rendering import Renderer, created_status, deleted_status, form
from scheduler.embedded.reviews import Reviewer
from scheduler.embedded.selectors import matcher
from scheduler.embedded.status import (
    ApiError,
    Json,
    bad_request,
    internal,
    method_not_allowed,
)
from scheduler.embedded.store import Record
from scheduler.embedded.watch import CutStream, OpenWatch, WatchRequest, lines

_MAX_BODY_BYTES = 3 * 1024 * 1024
_LONGEST_WATCH_S = 1800.0


class _Dropped(Exception):  # noqa: N818 - not an error: the answer is to be lost
    """The connection is to be closed without an answer."""


@dataclass(slots=True)
class Reply:
    """An answer before it is bytes on the wire."""

    code: int
    body: bytes


@dataclass(slots=True)
class Handlers:
    """Everything behind the socket. `bookmark_interval_s` is how often idle watches hear their revision."""

    registry: Registry
    faults: FaultPlan
    audit: Audit
    reviewer: Reviewer
    bookmark_interval_s: float
    watches: set[OpenWatch] = field(default_factory=set)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        try:
            document = discovery.document(path, request.host) if request.method == "GET" else None
            if document is not None:
                return _document(document)
            target = parse(path)
        except ApiError as error:
            return _error(error)
        call = call_of(verb_of(request.method, target, request.query), target, request.headers.get("User-Agent", ""))
        code = 0
        try:
            faults = self.faults.take(call)
            await _before(faults)
            if call.verb == "watch" and target.kind is not None:
                return await self._watch(request, target.kind, target.namespace, faults, call)
            reply = await self._serve(request, target, call)
            if any(fault.action is Action.DROP_AFTER for fault in faults):
                raise _Dropped
            code = reply.code
            return web.Response(status=reply.code, body=reply.body, content_type="application/json")
        except ApiError as error:
            code = error.code
            return _error(error)
        except _Dropped:
            return _drop(request)
        finally:
            if call.verb != "watch" or code:
                self.audit.record(call, path, code, self.registry.store.revision)

    async def _serve(self, request: web.BaseRequest, target: Target, call: Call) -> Reply:
        raw = await request.content.read() if request.can_read_body else b""
        if len(raw) > _MAX_BODY_BYTES:
            raise ApiError(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")
        content_type = request.headers.get("Content-Type", "application/json")
        body = parse_body(raw, content_type, patching=call.verb == "patch") if raw else None
        if target.kind is None:
            return self._kindless(target, call.verb, body)
        render = Renderer(target.kind, form(request.headers.get("Accept", "")), self.registry.now())
        if target.subresource in ("binding", "eviction"):
            return self._pod_subresource(target, call.verb, body, request.query)
        return self._object(target, target.kind, call.verb, body, content_type, request.query, render)

    def _object(
        self,
        target: Target,
        kind: Kind,
        verb: str,
        body: Any,
        content_type: str,
        query: Mapping[str, str],
        render: Renderer,
    ) -> Reply:
        registry, namespace, name = self.registry, target.namespace, target.name
        dry_run = "All" in query.get("dryRun", "")
        match verb:
            case "get":
                return Reply(200, render.one(registry.get(kind, namespace, name)))
            case "list":
                return Reply(200, render.page(page(registry.store, kind, namespace, query)))
            case "create" if not name and (namespace or not kind.namespaced):
                return Reply(201, render.one(registry.create(kind, namespace, body, dry_run=dry_run)))
            case "update" if name:
                record, created = registry.update(
                    kind, namespace, name, body, subresource=target.subresource, dry_run=dry_run
                )
                return Reply(201 if created else 200, render.one(record))
            case "patch" if name:
                media = content_type.split(";")[0].strip()
                record = registry.patch(
                    kind, namespace, name, media, body, subresource=target.subresource, dry_run=dry_run
                )
                return Reply(200, render.one(record))
            case "delete" if not target.subresource:
                record, gone = registry.delete(kind, namespace, name, delete_options(body, query))
                if gone and not kind.returns_deleted:
                    return Reply(200, msgspec.json.encode(deleted_status(kind, record)))
                return Reply(200, render.one(record))
            case "deletecollection":
                return Reply(200, render.page(self._delete_all(kind, namespace, body, query)))
            case _:
                raise method_not_allowed()

    def _delete_all(self, kind: Kind, namespace: str, body: Any, query: Mapping[str, str]) -> Page:
        found = page(self.registry.store, kind, namespace, query)
        options = delete_options(body, query)
        gone: list[Record] = []
        for record in found.records:
            self.registry.delete(kind, record.key[0], record.key[1], options)
            gone.append(record)
        return Page(gone, self.registry.store.revision)

    def _pod_subresource(self, target: Target, verb: str, body: Any, query: Mapping[str, str]) -> Reply:
        if verb != "create":
            raise method_not_allowed()
        if target.subresource == "binding":
            self.registry.bind(target.namespace, target.name, body, dry_run="All" in query.get("dryRun", ""))
        else:
            options = (body or {}).get("deleteOptions") if isinstance(body, dict) else None
            self.registry.evict(target.namespace, target.name, delete_options(options, query))
        return Reply(201, msgspec.json.encode(created_status()))

    def _kindless(self, target: Target, verb: str, body: Any) -> Reply:
        if verb != "create":
            raise method_not_allowed()
        if target.plural != "bindings":
            return Reply(201, msgspec.json.encode(self.reviewer.review(target.plural, body)))
        name = (body.get("metadata") or {}).get("name", "") if isinstance(body, dict) else ""
        if not target.namespace or not name:
            raise bad_request("name and namespace are required")
        self.registry.bind(target.namespace, name, body)
        return Reply(201, msgspec.json.encode(created_status()))

    async def _watch(
        self, request: web.BaseRequest, kind: Kind, namespace: str, faults: list[Fault], call: Call
    ) -> web.StreamResponse:
        wanted = self._watch_request(kind, namespace, request.query)
        render = Renderer(kind, form(request.headers.get("Accept", "")), self.registry.now())
        stream = OpenWatch(kind.plural, call.user_agent, [f for f in faults if f.action in STREAM_ACTIONS])
        self.audit.record(call, request.path, 200, self.registry.store.revision)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        self.watches.add(stream)
        try:
            async for chunk in lines(wanted, self.registry.store, render, stream):
                await response.write(chunk)
            await response.write_eof()
        except CutStream as cut:
            await response.write(cut.part)
            if request.transport is not None:
                request.transport.close()
        except ConnectionError:
            pass  # the client went away: nobody is left to tell
        finally:
            self.watches.discard(stream)
        return response

    def _watch_request(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> WatchRequest:
        store = self.registry.store
        revision = parse_revision(query.get("resourceVersion", ""))
        initial = truth(query.get("sendInitialEvents"))
        timeout = query.get("timeoutSeconds", "")
        if timeout and not timeout.isdigit():
            raise bad_request(f'strconv.ParseInt: parsing "{timeout}": invalid syntax')
        return WatchRequest(
            table=store.table(kind.table),
            namespace=namespace,
            match=matcher(query.get("labelSelector", ""), query.get("fieldSelector", ""), kind),
            start=revision if revision and not initial else None,
            bookmarks=truth(query.get("allowWatchBookmarks")),
            initial_events=initial,
            timeout_s=float(timeout) if timeout and timeout != "0" else random.uniform(0.5, 1.0) * _LONGEST_WATCH_S,
            bookmark_interval_s=self.bookmark_interval_s,
        )


async def _before(faults: list[Fault]) -> None:
    for fault in faults:
        match fault.action:
            case Action.DELAY:
                await asyncio.sleep(fault.delay_s)
            case Action.DROP_BEFORE:
                raise _Dropped
            case Action.ANSWER:
                reason, message = fault.text()
                raise ApiError(fault.code, reason, message, retry_after_s=fault.retry_after_s)
            case _:
                pass  # the others happen after the effect or inside a stream


def _drop(request: web.BaseRequest) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _document(document: Json | str) -> web.Response:
    if isinstance(document, str):
        return web.Response(text=document)
    return web.Response(body=msgspec.json.encode(document), content_type="application/json")


def _error(error: ApiError) -> web.Response:
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    body = msgspec.json.encode(error.status())
    return web.Response(status=error.code, body=body, content_type="application/json", headers=headers)


async def guarded(handlers: Handlers, request: web.BaseRequest) -> web.StreamResponse:
    """The outermost handler: a bug of ours is a 500 with its text, as a panic is on the real server."""
    try:
        return await handlers.handle(request)
    except Exception as error:
        return _error(internal(f"{type(error).__name__}: {error}"))
