"""An HTTPS proxy in front of a real API server that makes each kind of fault happen, request by request.

It ends TLS, so that it can tell requests apart, answer itself, send a request twice, and cut a watch in the middle of a
line. Everything it does not spoil passes through byte by byte.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from e2e.chaos.faults import Fault, FaultPlan

LATE_MIN_S, LATE_MAX_S = 0.05, 2.0
WATCH_LATE_MAX_S = 4.0
_PASSED = ("Authorization", "Content-Type", "Accept", "User-Agent")
_ANSWERS = {
    Fault.CONFLICT: (409, "Conflict", "the object has been modified; please apply your changes to the latest version"),
    Fault.OVERLOADED: (429, "TooManyRequests", "too many requests, please try again later"),
    Fault.ERROR_500: (500, "InternalError", "an error on the server has prevented the request from succeeding"),
    Fault.ERROR_AFTER: (500, "InternalError", "an error on the server has prevented the request from succeeding"),
    Fault.ERROR_503: (503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    Fault.TIMEOUT_AFTER: (504, "Timeout", "request did not complete within requested timeout"),
    Fault.GONE: (410, "Expired", "too old resource version"),
    Fault.WATCH_GONE: (410, "Expired", "too old resource version"),
    Fault.WATCH_ERROR: (500, "InternalError", "etcdserver: request timed out"),
}
_PAGE = "<html><body>Bad gateway</body></html>"


class _Watch:
    """One open watch: faults are put in by the schedule."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.fault: Fault | None = None
        self.late_until_s = 0.0
        self.poked = asyncio.Event()
        self.flowing = asyncio.Event()
        self.flowing.set()


class FaultProxy:
    """An async context manager; ``port`` is its loopback port. ``plan`` says what each request meets.

    ``certificate``: (certificate file, key file) that clients of the API server trust for 127.0.0.1.
    """

    def __init__(self, target: str, ca_file: Path, certificate: tuple[Path, Path], plan: FaultPlan) -> None:
        self._target, self.plan = target, plan
        self._trust = ssl.create_default_context(cafile=str(ca_file))
        self._identity = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._identity.load_cert_chain(*certificate)
        self._watches: set[_Watch] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None
        self._session: aiohttp.ClientSession | None = None
        self.port = 0

    async def __aenter__(self) -> FaultProxy:
        connector = aiohttp.TCPConnector(ssl=self._trust, limit=0)
        # Redirects, compression and time-outs are the client's business and the server's.
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.flow()
        self.cut_all()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    def kubeconfig(self, original: Path, file: Path) -> Path:
        """A copy of a kubeconfig that leads through the proxy."""
        document = yaml.safe_load(original.read_text())
        for cluster in document["clusters"]:
            cluster["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(document))
        return file

    # what the schedule does to all connections at once

    async def listen(self) -> None:
        """Accept connections (again), always on the same port."""
        if self._site is None and self._runner is not None:
            self._site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._identity)
            await self._site.start()
            if not self.port:
                self.port = self._runner.addresses[0][1]

    async def refuse(self) -> None:
        """Refuse new connections and cut those there are: the server is gone."""
        if self._site is not None:
            await self._site.stop()
            self._site = None
        self.cut_all()

    def cut_all(self) -> int:
        """Abort every connection, idle or whatever is under way; how many there were."""
        server = None if self._runner is None else self._runner.server
        transports = [] if server is None else [connection.transport for connection in server.connections]
        cut = [transport for transport in transports if transport is not None]
        for transport in cut:
            transport.abort()
        return len(cut)

    def stall(self) -> None:
        """Answer nothing until ``flow``; connections stay open: the server hangs."""
        self._flowing.clear()

    def flow(self) -> None:
        """Go on after ``stall``."""
        self._flowing.set()

    def spoil_watches(self, fault: Fault, resource: str = "") -> int:
        """Let the open watches (of one resource) meet this fault with their next event; how many there were."""
        chosen = [watch for watch in self._watches if resource in ("", watch.resource)]
        for watch in chosen:
            self.plan.count(fault)
            if fault is Fault.WATCH_LATE:
                late_s = self.plan.rng.uniform(0.5, WATCH_LATE_MAX_S)
                watch.late_until_s = asyncio.get_running_loop().time() + late_s
            else:
                watch.fault = fault
            watch.poked.set()
        return len(chosen)

    def hold_watches(self, resource: str) -> int:
        """Let the open watches of a resource show nothing until ``release_watches``; how many there are."""
        chosen = [watch for watch in self._watches if watch.resource == resource]
        for watch in chosen:
            watch.flowing.clear()
        return len(chosen)

    def release_watches(self) -> None:
        """Show what was held back."""
        for watch in self._watches:
            watch.flowing.set()

    # requests

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            await self._flowing.wait()
            return await self._faulty(request)
        except (aiohttp.ClientError, ConnectionError, ssl.SSLError):
            _abort(request)  # the server behind us is gone, or the client is
            return web.Response(status=502)

    async def _faulty(self, request: web.Request) -> web.StreamResponse:
        watch = request.query.get("watch") in ("1", "true")
        body = await request.read()
        listing = request.method == "GET" and "limit" in request.query
        fault = self.plan.draw(request.method, watch=watch, listing=listing)
        if fault is Fault.LOST_BEFORE:
            _abort(request)
            return web.Response(status=502)
        if fault in (Fault.CONFLICT, Fault.OVERLOADED, Fault.ERROR_500, Fault.ERROR_503, Fault.GONE):
            return _answer(fault)
        if watch:
            if fault is Fault.WRONG_TYPE:
                return web.Response(text=_PAGE, content_type="text/html")
            return await self._watch(request)
        if fault is Fault.DUPLICATED:
            first = await self._forward(request, body)
            second = await self._forward(request, body)
            return self.plan.rng.choice([first, second])
        answer = await self._forward(request, body)
        await self._flowing.wait()
        return await self._spoilt(request, answer, fault)

    async def _spoilt(self, request: web.Request, answer: web.Response, fault: Fault | None) -> web.StreamResponse:
        content = answer.body if isinstance(answer.body, bytes) else b""
        if fault is Fault.LOST_AFTER:
            _abort(request)
        elif fault is Fault.DELAYED:
            await asyncio.sleep(self.plan.rng.uniform(LATE_MIN_S, LATE_MAX_S))
        elif fault in (Fault.ERROR_AFTER, Fault.TIMEOUT_AFTER):
            return _answer(fault)
        elif fault is Fault.TRUNCATED:
            return web.Response(status=answer.status, body=content[: len(content) // 2], headers=answer.headers)
        elif fault is Fault.WRONG_TYPE:
            return web.Response(text=_PAGE, content_type="text/html")
        elif fault is Fault.CUT_BODY:
            cut = web.StreamResponse(status=answer.status, headers={"Content-Length": str(len(content))})
            await cut.prepare(request)
            await cut.write(content[: len(content) // 2])
            _abort(request)
            return cut
        return answer

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        assert self._session is not None
        async with self._session.request(
            request.method,
            URL(self._target + request.raw_path, encoded=True),
            data=body or None,
            headers=_headers(request),
            allow_redirects=False,
        ) as answer:
            content = await answer.read()
            headers = {key: answer.headers[key] for key in ("Content-Type", "Retry-After") if key in answer.headers}
            return web.Response(status=answer.status, body=content, headers=headers)

    # watches

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        watch = _Watch(request.path.rsplit("/", 1)[1])
        async with self._session.get(
            URL(self._target + request.raw_path, encoded=True), headers=_headers(request)
        ) as answer:
            headers = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            stream = web.StreamResponse(status=answer.status, headers=headers)
            await stream.prepare(request)
            self._watches.add(watch)
            try:
                await self._pass_on(request, watch, answer, stream)
            finally:
                self._watches.discard(watch)
            return stream

    async def _pass_on(
        self, request: web.Request, watch: _Watch, answer: aiohttp.ClientResponse, stream: web.StreamResponse
    ) -> None:
        loop = asyncio.get_running_loop()
        reading: asyncio.Task[bytes] | None = None
        poked: asyncio.Task[bool] | None = None
        try:
            while True:
                reading = reading or asyncio.create_task(answer.content.readany())
                poked = poked or asyncio.create_task(watch.poked.wait())
                await asyncio.wait([reading, poked], return_when=asyncio.FIRST_COMPLETED)
                if poked.done():
                    poked = None
                    watch.poked.clear()
                chunk = b""
                if reading.done():
                    chunk, reading = reading.result(), None
                    if not chunk:
                        return
                await self._flowing.wait()
                held = not watch.flowing.is_set()
                await watch.flowing.wait()
                await asyncio.sleep(max(0.0, watch.late_until_s - loop.time()))
                if watch.fault is None:
                    if held and reading is None:
                        chunk += answer.content.read_nowait()  # all that was held back comes at once
                    await stream.write(chunk)
                elif await _spoil(request, stream, watch.fault, chunk):
                    return
        finally:
            left = [task for task in (reading, poked) if task is not None]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


async def _spoil(request: web.Request, stream: web.StreamResponse, fault: Fault, chunk: bytes) -> bool:
    """End a watch the way ``fault`` says; False when it needs an event that has not come yet."""
    if fault is Fault.WATCH_CUT:
        # In the middle of a line, so it needs one.
        if not chunk:
            return False
        await stream.write(chunk[: len(chunk) // 2])
        _abort(request)
        return True
    if fault is Fault.WATCH_GARBAGE:
        if not chunk:
            return False
        line = chunk.split(b"\n", 1)[0]
        await stream.write(line[: len(line) // 2] + b"\n")
        return True
    if fault in (Fault.WATCH_GONE, Fault.WATCH_ERROR):
        code, reason, message = _ANSWERS[fault]
        status = f'{{"kind":"Status","code":{code},"reason":"{reason}","message":"{message}"}}'
        await stream.write(f'{{"type":"ERROR","object":{status}}}\n'.encode())
    return True


def _headers(request: web.Request) -> dict[str, str]:
    # Uncompressed: what is cut in two shall be JSON cut in two.
    return {key: request.headers[key] for key in _PASSED if key in request.headers} | {"Accept-Encoding": "identity"}


def _answer(fault: Fault) -> web.Response:
    code, reason, message = _ANSWERS[fault]
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    headers = {"Retry-After": "1"} if fault is Fault.OVERLOADED else {}
    return web.json_response({**body, "message": message}, status=code, headers=headers)


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
