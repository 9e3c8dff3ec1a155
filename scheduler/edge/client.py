"""Requests to the API server over one HTTP session of our own.

Every failure leaves as one of ``edge.errors``; no exception of the HTTP library ever does. Bodies are bytes both ways.
Retries follow kube-scheduler 1.37 (InternalError, ServiceUnavailable, connection refused: 4 tries, 10 ms, factor 5,
jitter 10 %); 429 waits as long as the server says. A write asks the gate before each try.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from yarl import URL

from scheduler import __version__
from scheduler.api.bodies import JSON
from scheduler.edge.credentials import Access
from scheduler.edge.direct import DirectRequests
from scheduler.edge.errors import AnswerLost, ApiUnavailable, ServerError, TooManyRequests, api_error
from scheduler.edge.timeslices import turns
from scheduler.errors import ClusterError

if TYPE_CHECKING:
    from aiohttp.connector import Connection

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0
CONNECTIONS_MAX = 128
TRIES_MAX = 4
TRIES_OVERLOADED_MAX = 10
RETRY_FIRST_S, RETRY_FACTOR, RETRY_JITTER = 0.010, 5.0, 0.1
RETRY_AFTER_MAX_S = 30.0

Sleep = Callable[[float], Awaitable[None]]


class Response(msgspec.Struct, frozen=True):
    """A successful answer (200..299)."""

    status: int
    body: bytes


class WriteGate(Protocol):
    """Asked before every write leaves the process."""

    def check(self) -> None:
        """Raise NotLeading when no write may be sent now."""


class OpenGate:
    """Lets every write pass: no leader election."""

    def check(self) -> None:
        """Never raises."""


_GATE: ContextVar[WriteGate | None] = ContextVar("write gate of the request under way", default=None)


_SENT: ContextVar[Callable[[aiohttp.ClientRequest], None] | None] = ContextVar("told of requests sent", default=None)


class _GatedRequest(aiohttp.ClientRequest):
    """Asks the gate once more when a connection is there: waiting for one may outlast the lease."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        gate, sent = _GATE.get(), _SENT.get()
        if gate is not None:
            gate.check()
        if sent is not None:
            sent(self)
        return await super().send(conn)


Observer = Callable[[str, int, float], None]
"""Called after each try with method, HTTP status (0: no answer) and seconds taken (by a stream: until it began)."""


def _ignore(method: str, status: int, duration_s: float) -> None:
    pass


def _pass() -> None:
    pass


class ApiClient:
    """The API server of one cluster. Close it with ``close`` or use it as an async context manager.

    ``gate`` is asked before each write; ``sleep`` and ``rng`` serve the retries; ``observe`` sees every try.
    """

    def __init__(
        self,
        access: Access,
        *,
        gate: WriteGate | None = None,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
        observe: Observer = _ignore,
        user_agent: str = f"dra-scheduler/{__version__}",
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self.access = access
        self.gate: WriteGate = gate or OpenGate()
        self._sleep, self._rng, self._observe = sleep, rng or random.Random(), observe
        self._user_agent, self._connections_max = user_agent, connections_max
        self._session: aiohttp.ClientSession | None = None
        self._direct: DirectRequests | None = None
        self._closed = False

    async def __aenter__(self) -> ApiClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; later requests raise ApiUnavailable."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise ApiUnavailable("the client is closed")
        if self._session is None:
            # Made here, not in __init__: a session belongs to the running loop.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections_max, ssl=self.access.tls or True),
                request_class=_GatedRequest,
                trust_env=False,
                auto_decompress=True,
                headers={"User-Agent": self._user_agent, "Accept": JSON},
                raise_for_status=False,
            )
        return self._session

    @staticmethod
    def _target(path: str, query: Mapping[str, str] | None) -> str:
        text = quote(path, safe="/:@!$&'()*+,;=~%")
        return f"{text}?{urlencode(query)}" if query else text

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        return URL(self.access.server + self._target(path, query), encoded=True)

    def _sent(self, request: aiohttp.ClientRequest) -> None:
        """From the first ordinary request on, small writes may take the shorter way over its connections."""
        if self._direct is None and self._session is not None and self.access.proxy is None:
            self._direct = DirectRequests(self._session, request, URL(self.access.server).path, CONNECT_TIMEOUT_S)

    def _headers(self, content_type: str = "") -> dict[str, str]:
        headers: dict[str, str] = {}
        authorization = self.access.authorization()
        if authorization:
            headers["Authorization"] = authorization
        if content_type:
            headers["Content-Type"] = content_type
        return headers

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = JSON,
        *,
        query: Mapping[str, str] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
        gated: bool = True,
        accept: str = "",
    ) -> Response:
        """One try. Raises ApiError, ApiUnavailable or AnswerLost; for a write also NotLeading.

        ``gated`` False is for requests that only look like writes (reviews): they do not ask the gate. ``accept``: the
        form of the answer, where it is not JSON.
        """
        gate = self.gate if gated and method != "GET" else None
        if gate is not None:
            gate.check()
        session = self._open()
        call = f"{method} {path}"
        loop = asyncio.get_running_loop()
        started_s, status = loop.time(), 0
        try:
            with mapped_errors(call):
                if self._direct is not None and body is not None and not accept:
                    headers = self._headers(content_type)
                    check = _pass if gate is None else gate.check
                    status, content, retry_after = await self._direct.send(
                        method, self._target(path, query), body, headers, check, timeout_s
                    )
                    await turns().take()
                else:
                    headers = self._headers(content_type if body is not None else "")
                    if accept:
                        headers["Accept"] = accept
                    answer = await self._ordinary(
                        session, method, self._url(path, query), body, headers, timeout_s, gate
                    )
                    status, content, retry_after = answer
        finally:
            self._observe(method, status, loop.time() - started_s)
        if status == 401:
            self.access.forget_token()
        if not 200 <= status < 300:
            raise api_error(status, content, call, retry_after)
        return Response(status, content)

    async def _ordinary(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: URL,
        body: bytes | None,
        headers: dict[str, str],
        timeout_s: float,
        gate: WriteGate | None,
    ) -> tuple[int, bytes, str]:
        """As ``DirectRequests.send``, the library's general way."""
        tokens = _GATE.set(gate), _SENT.set(self._sent)
        try:
            async with session.request(
                method,
                url,
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S),
                allow_redirects=False,
                server_hostname=self.access.server_name,
                proxy=self.access.proxy,
            ) as answer:
                return answer.status, await answer.read(), answer.headers.get("Retry-After", "")
        finally:
            _GATE.reset(tokens[0])
            _SENT.reset(tokens[1])

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = JSON,
        *,
        query: Mapping[str, str] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
        gated: bool = True,
        accept: str = "",
    ) -> Response:
        """``request`` with retries. A write whose answer was lost is not repeated here: the caller reads back."""
        tries = overloaded = 0
        while True:
            try:
                return await self.request(
                    method, path, body, content_type, query=query, timeout_s=timeout_s, gated=gated, accept=accept
                )
            except TooManyRequests as error:
                overloaded += 1
                if overloaded >= TRIES_OVERLOADED_MAX:
                    raise
                await self._sleep(self._jittered(min(error.retry_after_s, RETRY_AFTER_MAX_S)))
            except (ServerError, ApiUnavailable, AnswerLost) as error:
                tries += 1
                if tries >= TRIES_MAX or not self._repeatable(method, error):
                    raise
                pause_s = RETRY_FIRST_S * RETRY_FACTOR ** (tries - 1)
                if isinstance(error, ServerError) and error.retry_after_s:
                    pause_s = min(error.retry_after_s, RETRY_AFTER_MAX_S)
                await self._sleep(self._jittered(pause_s))

    def _repeatable(self, method: str, error: ClusterError) -> bool:
        if self._closed:
            return False
        if isinstance(error, ServerError):
            return method == "GET" or error.status in (500, 503)
        return method == "GET" or isinstance(error, ApiUnavailable)

    def _jittered(self, pause_s: float) -> float:
        return pause_s * (1.0 + RETRY_JITTER * self._rng.random())

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], *, silence_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A long answer as raw chunks, in the sizes they arrive.

        Raises like ``request``; AnswerLost when the stream breaks or nothing arrives for ``silence_timeout_s``.
        """
        session = self._open()
        call = f"GET {path} (watch)"
        loop = asyncio.get_running_loop()
        started_s, status = loop.time(), 0
        try:
            with mapped_errors(call):
                answer = await session.get(
                    self._url(path, query),
                    headers=self._headers(),
                    timeout=aiohttp.ClientTimeout(
                        total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=silence_timeout_s
                    ),
                    allow_redirects=False,
                    server_hostname=self.access.server_name,
                    proxy=self.access.proxy,
                )
            status = answer.status
        finally:
            self._observe("GET", status, loop.time() - started_s)
        try:
            if answer.status != 200:
                with mapped_errors(call):
                    content = await answer.read()
                if answer.status == 401:
                    self.access.forget_token()
                raise api_error(answer.status, content, call, answer.headers.get("Retry-After", ""))
            yield _chunks(answer, call)
        finally:
            answer.close()


async def _chunks(answer: aiohttp.ClientResponse, call: str) -> AsyncIterator[bytes]:
    while True:
        with mapped_errors(call):
            chunk = await answer.content.readany()
        if not chunk:
            return
        yield chunk


@contextmanager
def mapped_errors(call: str) -> Iterator[None]:
    """Turn the HTTP library's exceptions into ours. Only what certainly was not sent becomes ApiUnavailable."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
        raise ApiUnavailable(f"{call}: cannot connect: {error}") from error
    except (aiohttp.ClientError, OSError, TimeoutError, aiohttp.http.HttpProcessingError) as error:
        raise AnswerLost(f"{call}: no answer: {error or type(error).__name__}") from error
    except ValueError as error:
        # A header that cannot be written. The text shows it, the token may be the one: not even as a cause.
        raise AnswerLost(f"{call}: no answer: the request cannot be written: {type(error).__name__}") from None
    except RuntimeError as error:
        if "closed" not in str(error).lower():
            raise
        raise ApiUnavailable(f"{call}: the client is closed") from error
