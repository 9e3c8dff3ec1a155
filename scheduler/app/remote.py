"""Asks a running scheduler: at a URL, or through a port-forward of the command's own."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import Access, find_access
from scheduler.edge.errors import ApiError, NotFound
from scheduler.edge.port_forward import PortForward
from scheduler.edge.questions import PREFIX
from scheduler.errors import ClusterError, UserError

T = TypeVar("T")
NAMESPACE = "dra-scheduler"
SELECTOR = "app.kubernetes.io/name=dra-scheduler"
PORT_NAME, PORT = "https", 10259
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Remote:
    """Where the scheduler is and who asks. ``url`` "": port-forward to a Pod of ``namespace``.

    ``token_file`` "": the kubeconfig's token. ``ca_file`` and ``unverified`` say how the scheduler proves who it is.
    """

    url: str = ""
    kubeconfig: str = ""
    namespace: str = NAMESPACE
    token_file: str = ""
    ca_file: str = ""
    unverified: bool = False


class Told(msgspec.Struct, Generic[T]):
    """An answer, and the scheduler's time in Unix seconds."""

    now: float
    answer: T


def explanation_path(namespace: str, name: str) -> str:
    """The question about one Pod."""
    return f"/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}/explanation"


def ask(remote: Remote, path: str, kind: type[T], query: Mapping[str, str] | None = None) -> Told[T]:
    """One question. Raises ClusterError and UserError with the scheduler's words, ConfigError, OSError."""
    return asyncio.run(_ask(remote, path, kind, dict(query or {})))


def ask_each(remote: Remote, path: str, kind: type[T], query: Mapping[str, str] | None = None) -> list[Told[T]]:
    """One question to every replica that can be reached, those that know no answer left out: each has its own record.

    A URL is one replica. Raises as ``ask`` when none of them answers.
    """
    return asyncio.run(_ask_each(remote, path, kind, dict(query or {})))


async def _ask(remote: Remote, path: str, kind: type[T], query: dict[str, str]) -> Told[T]:
    async with reached(remote) as access:
        return await _answer(access, path, kind, query)


async def _ask_each(remote: Remote, path: str, kind: type[T], query: dict[str, str]) -> list[Told[T]]:
    if remote.url:
        return [await _ask(remote, path, kind, query)]
    cluster, token, pods = await _replicas(remote)
    told: list[Told[T]] = []
    refusals: list[ClusterError | UserError] = []
    for pod, port in pods:
        try:
            async with _forwarded(remote, cluster, token, pod, port) as access:
                told.append(await _answer(access, path, kind, query))
        except (ClusterError, UserError) as error:
            refusals.append(error)
    if not told:
        raise refusals[0]
    return told


async def _answer(access: Access, path: str, kind: type[T], query: dict[str, str]) -> Told[T]:
    async with ApiClient(access, user_agent="dra-scheduler command") as client:
        try:
            answer = await client.call("GET", PREFIX + path, query=query, timeout_s=TIMEOUT_S)
        except NotFound as error:
            if not error.message:
                text = f"{access.server} answers no questions: is it a dra-scheduler of this version?"
                raise ClusterError(text) from error
            raise
        except ApiError as error:
            if error.status == 401:
                raise UserError("token", "", f"the scheduler does not accept it: {error.message}") from error
            raise
        try:
            return msgspec.json.decode(answer.body, type=Told[kind])  # type: ignore[valid-type]  # a type at run time
        except msgspec.DecodeError as error:
            raise ClusterError(f"{access.server} answered something else: {error}") from error


@asynccontextmanager
async def reached(remote: Remote) -> AsyncIterator[Access]:
    """How to speak to the scheduler, while the block lasts."""
    if remote.url:
        yield await _at_url(remote)
        return
    cluster, token, pods = await _replicas(remote)
    async with _forwarded(remote, cluster, token, *pods[0]) as access:
        yield access


async def _replicas(remote: Remote) -> tuple[Access, str, list[tuple[str, int]]]:
    """The cluster, who asks, and the scheduler's Pods that are ready, with their ports."""
    cluster = await find_access(remote.kubeconfig)
    token = _token_of(remote, cluster)
    async with ApiClient(cluster, user_agent="dra-scheduler command") as client:
        return cluster, token, await _scheduler_pods(client, remote.namespace)


@asynccontextmanager
async def _forwarded(remote: Remote, cluster: Access, token: str, pod: str, port: int) -> AsyncIterator[Access]:
    forward = PortForward(cluster, remote.namespace, pod, port)
    async with forward.listening() as local:
        # Its certificate is of its own making, but the way to it leads through the API server and the kubelet.
        tls = _context(remote, verified=bool(remote.ca_file))
        if remote.ca_file:
            tls.check_hostname = False  # the certificate names the Service, not this end of the tunnel
        try:
            yield Access(f"https://127.0.0.1:{local}", tls=tls, authorization=token)
        except ClusterError as error:
            if forward.trouble:
                raise ClusterError(f"{forward.trouble} ({error})") from error
            raise


async def _at_url(remote: Remote) -> Access:
    parts = urlsplit(remote.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError("--server", "", f"{remote.url!r} is not a URL such as https://HOST:10259")
    server = f"{parts.scheme}://{parts.netloc}"
    if parts.scheme == "http":
        if not _is_loopback(parts.hostname):
            raise UserError("--server", "", "plain http is for this machine only: a token must not travel unprotected")
        # Only the demo answers plain http, and it asks for no token: none is sent unless one was given for it.
        return Access(server, authorization=_from_file(remote.token_file) if remote.token_file else "")
    token = _token_of(remote, None if remote.token_file else await find_access(remote.kubeconfig))
    return Access(server, tls=_context(remote, verified=not remote.unverified), authorization=token)


def _token_of(remote: Remote, cluster: Access | None) -> str:
    if remote.token_file or cluster is None:
        return _from_file(remote.token_file)
    header = cluster.authorization()
    if header.startswith("Bearer "):
        return header
    if not header and cluster.tls is None:
        text = (
            "it has no credentials, as the demo's has none. The demo's scheduler asks for none: give --server with the "
        )
        raise UserError(
            "kubeconfig", "", text + "address of the dashboard that the demo printed (http://127.0.0.1:PORT)"
        )
    text = "it has no bearer token (a client certificate proves who you are to the API server only); "
    raise UserError("kubeconfig", "", text + "give --token-file, for example from kubectl create token NAME")


def _from_file(name: str) -> str:
    text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    token = text.strip()
    if not token or any(character.isspace() for character in token):
        raise UserError("--token-file", "", f"{name} does not hold one token")
    return f"Bearer {token}"


def _context(remote: Remote, verified: bool) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=remote.ca_file or None)
    except (ssl.SSLError, OSError) as error:
        raise UserError("--server-ca", "", f"{remote.ca_file}: {error}") from error
    if hasattr(ssl, "VERIFY_X509_STRICT"):
        # As in edge.credentials: authorities made by hand often lack key identifiers.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _scheduler_pods(client: ApiClient, namespace: str) -> list[tuple[str, int]]:
    """The Pods of the scheduler that are ready, one at least, and their ports; by name."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
    answer = await client.call("GET", path, query={"labelSelector": SELECTOR})
    pods = msgspec.json.decode(answer.body, type=_Pods).items
    ready = sorted((pod for pod in pods if pod.spec.nodeName and pod.ready), key=lambda pod: pod.metadata.name)
    if not ready:
        there = f"{len(pods)} of them exist, none is ready" if pods else "there is none"
        raise ClusterError(f"no Pod of the scheduler in namespace {namespace}: {there}")
    return [(pod.metadata.name, pod.port) for pod in ready]


class _Port(msgspec.Struct):
    containerPort: int
    name: str = ""


class _Container(msgspec.Struct):
    ports: list[_Port] = []


class _Spec(msgspec.Struct):
    nodeName: str = ""
    containers: list[_Container] = []


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Meta(msgspec.Struct):
    name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def port(self) -> int:
        named = (port for one in self.spec.containers for port in one.ports if port.name == PORT_NAME)
        return next((port.containerPort for port in named), PORT)

    @property
    def ready(self) -> bool:
        return any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)


class _Pods(msgspec.Struct):
    items: list[_Pod] = []
