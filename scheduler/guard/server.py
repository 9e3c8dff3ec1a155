"""The HTTPS endpoint that the API server calls, in the shape kopf wants its admission servers.

kopf's own server closes its port to take up a renewed certificate; this one renews the TLS context in place, so that
rotation costs no connection. Whatever comes in gets an answer: 503 while this replica does not answer for the cluster
(the API server then follows the failurePolicy), 4xx with the reason for what is no review, 500 for our own errors.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import msgspec
from aiohttp import web

from scheduler.api.admission import review_problem
from scheduler.api.deep import plain
from scheduler.errors import ConfigError
from scheduler.guard.intake import BodyError, Intake
from scheduler.guard.reviewer import MODES, NotActiveError

_FAILURES: ContextVar[list[BaseException]] = ContextVar("what failed in the review under way")


def note_failure(error: BaseException) -> None:
    """Called in a review: its answer is an error of ours and not a refusal."""
    _FAILURES.get([]).append(error)


ReviewFunction = Callable[..., Awaitable[Any]]
Observer = Callable[[str, int, float], None]
"""Called after each request with mode ("" for none), HTTP status and duration in seconds."""


class AdmissionServer:
    """Listens on ``host``:``port`` (0: any free one, see ``port`` once ``listening``) with a TLS context.

    ``active`` raises NotActiveError while this replica must not answer. ``on_error`` gets our own failures.
    ``known_callers``: answer only who has shown a certificate that the context verifies.
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext | None,
        active: Callable[[], None],
        *,
        known_callers: bool = False,
        observe: Observer = lambda mode, status, duration_s: None,
        on_error: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self.port, self.listening = port, asyncio.Event()
        self._host, self._context, self._active = host, context, active
        self._known_callers = known_callers
        self._observe, self._on_error = observe, on_error
        self._intake = Intake()

    async def __call__(self, review: ReviewFunction) -> AsyncIterator[dict[str, str]]:
        """kopf's protocol: serve with ``review`` until closed; yields one client configuration, which nobody uses."""
        app = web.Application()

        async def serve(request: web.Request) -> web.Response:
            return await self._serve(review, request)

        app.router.add_post("/{mode}", serve)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=5.0)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, self._host or None, self.port, ssl_context=self._context).start()
            except OSError as error:
                raise ConfigError("--webhook-port", f"cannot listen on port {self.port}: {error}") from error
            self.port = int(runner.addresses[0][1])
            self.listening.set()
            yield {"url": f"https://{self._host}:{self.port}"}
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _serve(self, review: ReviewFunction, request: web.Request) -> web.Response:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        mode = request.match_info["mode"]
        if mode not in MODES:
            return _refused(404, f"there is no mode {mode[:40]!r}; paths: {', '.join('/' + name for name in MODES)}")
        if self._known_callers and (request.transport is None or not request.transport.get_extra_info("peercert")):
            response = _refused(401, "a client certificate is needed (--client-ca-file)")
        else:
            response = await self._answer(review, request, mode)
        self._observe(mode, response.status, loop.time() - started_s)
        return response

    async def _answer(self, review: ReviewFunction, request: web.Request, mode: str) -> web.Response:
        try:
            self._active()
            async with self._intake.body(request.content) as body:
                return await self._reviewed(review, request, mode, body)
        except NotActiveError as error:
            return _refused(503, str(error))
        except BodyError as error:
            return _refused(error.status, str(error))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            return _refused(400, f"the body is no JSON: {error}")
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:  # the caller gets an answer whatever happens; the log gets the error
            name = type(error).__name__
            if name in ("UnknownResourceError", "MissingDataError", "AmbiguousResourceError"):
                return _refused(400, f"this review cannot be answered: {error}")
            self._on_error(error)
            return _refused(500, f"the guard failed: {name}: {error}")

    async def _reviewed(self, review: ReviewFunction, request: web.Request, mode: str, body: bytes) -> web.Response:
        document = plain(body)
        problem = review_problem(document)
        if problem:
            return _refused(400, f"this is no AdmissionReview that can be answered: {problem}")
        failures: list[BaseException] = []
        _FAILURES.set(failures)
        answer = await review(document, webhook=mode, headers=dict(request.headers), sslpeer={})
        if failures:
            raise failures[0]
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def _refused(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)
