"""Talks to HTTP extenders: one connection pool and TLS context each, full objects from the API server.

Our own structs hold only what the scheduler reads, so Pods and nodes are sent as the API server stores them: a Pod is
read once per question, nodes are kept by resourceVersion. Source: kube-scheduler 1.37, extender.go (spec 8).
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp
import msgspec

from scheduler.api.core import Node, Pod
from scheduler.api.kinds import NODE, POD
from scheduler.config.model import Extender
from scheduler.config.userinfo import login
from scheduler.edge.binder import Binder
from scheduler.edge.client import ApiClient
from scheduler.errors import ClusterError, ConfigError, SchedulerError
from scheduler.framework.extender_calls import (
    CallExtenders,
    ExtenderCall,
    ExtenderError,
    arguments,
    bind_call,
    bind_refusal,
)
from scheduler.framework.extenders import binder_of

BEAT_S = 1.0
NODE_READS_MAX = 16
"""Nodes read at the same time; more than that at once are listed instead."""


class _ExtenderBindError(ClusterError):
    """An extender did not bind."""


class ExtenderClient:
    """Makes calls for ``framework.extenders``. ``beat`` is called while an answer is awaited.

    ``close`` ends all connections. Raises ConfigError for a tlsConfig that cannot be used.
    """

    def __init__(
        self,
        extenders: Sequence[Extender],
        client: ApiClient,
        binder: Binder,
        beat: Callable[[], None] = lambda: None,
        on_trouble: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._client, self._binder, self._beat, self._on_trouble = client, binder, beat, on_trouble
        self._contexts = {id(one): tls_context(one, f"extenders[{i}].tlsConfig") for i, one in enumerate(extenders)}
        self._sessions: dict[int, aiohttp.ClientSession] = {}
        self._nodes: dict[str, tuple[str, bytes]] = {}

    async def make(self, calls: CallExtenders) -> None:
        """Make all calls side by side; each then holds its body or its failure. Nothing is raised."""
        made = asyncio.gather(*(self._make(call) for call in calls.calls))
        while not made.done():
            await asyncio.wait([made], timeout=BEAT_S)
            self._beat()
        await made

    async def bind(self, extenders: Sequence[Extender], pod: Pod, node: str) -> bool:
        """True when an extender has bound ``pod``; False when the Bind plugins shall. Raises SchedulerError.

        A failure may hide a Binding that took effect, so the Pod is read back before it counts as one.
        """
        extender = binder_of(extenders, pod)
        if extender is None:
            return False
        self._client.gate.check()
        call = bind_call(extender, pod, node)
        await self._make(call)
        refusal = bind_refusal(call)
        if not refusal:
            return True
        if await self._binder.confirm(pod, node, _ExtenderBindError(refusal)):
            return True
        if extender.ignorable:
            self._on_trouble(f"an ignorable extender did not bind pod {pod.key}: {refusal}")
            return False
        raise _ExtenderBindError(refusal)

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions.values():
            await session.close()

    async def _make(self, call: ExtenderCall) -> None:
        try:
            body = await self._body(call)
            call.body = await self._post(call, body)
        except SchedulerError as error:
            call.failure = str(error)
        if call.failure is not None and call.extender.ignorable:
            self._on_trouble(f"an ignorable extender failed: {call.failure}")

    async def _body(self, call: ExtenderCall) -> bytes:
        if call.bind_to:
            return arguments(call, b"", (), msgspec.json.encode)
        pod = call.pod
        stored = await self._client.call("GET", POD.path(pod.metadata.namespace, pod.metadata.name))
        nodes = await self._stored_nodes(call.nodes or ())
        return arguments(call, stored.body, nodes, msgspec.json.encode)

    async def _stored_nodes(self, nodes: Sequence[Node]) -> list[bytes]:
        missing = [node for node in nodes if self._known(node) is None]
        if len(missing) > NODE_READS_MAX:
            await self._list_nodes()
            missing = [node for node in nodes if self._known(node) is None]
        limit = asyncio.Semaphore(NODE_READS_MAX)

        async def read(node: Node) -> None:
            async with limit:
                # A list of one: who may watch nodes may do that, too.
                query = {"fieldSelector": f"metadata.name={node.name}"}
                answer = await self._client.call("GET", NODE.path(), query=query)
                items = msgspec.json.decode(answer.body).get("items") or ()
                if not items:
                    raise ExtenderError(f"node {node.name} is gone")
                self._nodes[node.name] = (node.metadata.resourceVersion, msgspec.json.encode(items[0]))

        await asyncio.gather(*(read(node) for node in missing))
        return [self._nodes[node.name][1] for node in nodes]

    def _known(self, node: Node) -> bytes | None:
        version, body = self._nodes.get(node.name, ("", b""))
        return body if version == node.metadata.resourceVersion else None

    async def _list_nodes(self) -> None:
        answer = await self._client.call("GET", NODE.path(), query={"resourceVersion": "0"})
        found = msgspec.json.decode(answer.body)
        self._nodes = {
            item["metadata"]["name"]: (item["metadata"].get("resourceVersion", ""), msgspec.json.encode(item))
            for item in found.get("items") or ()
        }

    async def _post(self, call: ExtenderCall, body: bytes) -> bytes:
        url, tls = call.url, call.extender.tls
        name = (tls.server_name if tls is not None else "") or None
        try:
            prefix, authorization = login(call.extender.secret_url_prefix or call.extender.url_prefix)
            async with self._session(call.extender).post(
                f"{prefix.rstrip('/')}/{call.verb}",
                data=body,
                headers={"Content-Type": "application/json"},
                allow_redirects=False,
                server_hostname=name,
                middlewares=(_authenticated(authorization),) if authorization else None,
            ) as answer:
                content = await answer.read()
                if answer.status != 200:
                    raise ExtenderError(f"failed {call.verb} with extender at URL {url}, code {answer.status}")
                return content
        except TimeoutError as error:
            timeout_s = call.extender.http_timeout_s
            raise ExtenderError(f'Post "{url}": no answer within {timeout_s:g}s') from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ExtenderError(f'Post "{url}": {error or type(error).__name__}') from error

    def _session(self, extender: Extender) -> aiohttp.ClientSession:
        session = self._sessions.get(id(extender))
        if session is None:
            context = self._contexts.get(id(extender))
            session = self._sessions[id(extender)] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=True if context is None else context),
                timeout=aiohttp.ClientTimeout(total=extender.http_timeout_s),
                trust_env=True,
            )
        return session


def _authenticated(authorization: str) -> aiohttp.ClientMiddlewareType:
    """Sends the header, given this way because .netrc, which Go never reads, is put before a request's own header."""

    async def send(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        request.headers["Authorization"] = authorization
        return await handler(request)

    return send


def tls_context(extender: Extender, path: str = "") -> ssl.SSLContext | None:
    """The TLS context of an https extender, None for plain HTTP. Raises ConfigError naming ``path``.

    With ``enableHTTPS`` and no CA the certificate is not verified, as upstream does it.
    """
    tls = extender.tls
    if tls is None and not extender.enable_https:
        return None
    try:
        ca = "" if tls is None else (tls.ca_data.decode() or _text(tls.ca_file))
        context = ssl.create_default_context(cadata=ca or None)
        if (tls is not None and tls.insecure) or (extender.enable_https and not ca):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls is not None and (tls.cert_data or tls.cert_file):
            _load_pair(context, tls.cert_data or _bytes(tls.cert_file), tls.key_data or _bytes(tls.key_file))
    except (OSError, ValueError) as error:
        raise ConfigError(path, f"cannot be used: {error}") from error
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """The ssl module reads files only; these live for this call."""
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder, "certificate"), Path(folder, "key")
        for path, content in zip(paths, (certificate, key), strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
        context.load_cert_chain(*paths)


def _text(path: str) -> str:
    return _bytes(path).decode()


def _bytes(path: str) -> bytes:
    return Path(path).read_bytes() if path else b""
