"""The embedded server as one object: start, stop, load, faults, audit."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web

from scheduler.embedded.controllers import Controllers
from scheduler.embedded.faults import Action, Audit, FaultPlan
from scheduler.embedded.handlers import Handlers, guarded
from scheduler.embedded.kinds import by_api_kind
from scheduler.embedded.registry import Registry
from scheduler.embedded.reviews import Reviewer
from scheduler.embedded.status import Json
from scheduler.embedded.store import Record, Store

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_PRIORITY_CLASSES = (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))


def _utc_now() -> datetime:
    return datetime.now(UTC)


class EmbeddedServer:
    """An API server in this process, on a loopback port. All methods but start() must run in its event loop.

    controllers: whether claims are generated, reservations cleaned up and owned objects collected, as
    kube-controller-manager does. history: writes per kind that watches and old lists can look back on. seed: makes
    uids and generated names repeatable. now: replaces the clock.
    """

    def __init__(
        self,
        *,
        controllers: bool = True,
        history: int = 10_000,
        bookmark_interval_s: float = 60.0,
        seed: int | None = None,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self.store = Store(history)
        self.registry = Registry(self.store, now, random.Random(seed))
        self.faults = FaultPlan()
        self.audit = Audit()
        self.reviewer = Reviewer()
        self.url = ""
        self.port = 0
        self._handlers = Handlers(self.registry, self.faults, self.audit, self.reviewer, bookmark_interval_s)
        self._controllers = Controllers(self.registry) if controllers else None
        self._runner: web.ServerRunner | None = None
        self._fill()

    def _fill(self) -> None:
        for name in _NAMESPACES:
            self.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
        for name, value in _PRIORITY_CLASSES:
            self.load(
                [
                    {
                        "apiVersion": "scheduling.k8s.io/v1",
                        "kind": "PriorityClass",
                        "metadata": {"name": name},
                        "value": value,
                    }
                ]
            )

    async def start(self, port: int = 0) -> str:
        """Listens on 127.0.0.1 and returns the URL. A stopped server can start again, on the port it had.

        Port 0: a free one the first time. Raises OSError when the port is taken.
        """
        server = web.Server(partial(guarded, self._handlers), handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port or self.port, reuse_address=True, backlog=1024)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        self.url = f"http://127.0.0.1:{self.port}"
        if self._controllers is not None:
            self._controllers.start()
        return self.url

    async def stop(self) -> None:
        """Ends every stream and connection; objects stay, so that start() continues where this left off."""
        self.break_watches(Action.CLOSE)
        if self._controllers is not None:
            await self._controllers.stop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def settle(self, timeout_s: float = 10.0) -> None:
        """Waits until the controllers have nothing left to do."""
        if self._controllers is not None:
            async with asyncio.timeout(timeout_s):
                await self._controllers.idle()

    def load(self, objects: Iterable[Json]) -> list[Record]:
        """Creates objects without HTTP. Raises ApiError.

        Unlike with a create, status, uid and creationTimestamp are kept where given, and selectors need not compile:
        that is how a test gets what another version of the server let in.
        """
        return [self._load_one(obj) for obj in objects]

    def _load_one(self, obj: Json) -> Record:
        copy: Json = msgspec.json.decode(msgspec.json.encode(obj))
        kind = by_api_kind(copy.get("apiVersion", ""), copy.get("kind", ""))
        if kind is None:
            raise ValueError(f"not served here: {copy.get('apiVersion')} {copy.get('kind')}")
        namespace = (copy.get("metadata") or {}).get("namespace") or "default" if kind.namespaced else ""
        status = copy.get("status")
        record = self.registry.create(kind, namespace, copy, trusted=True)
        if status is None or kind.status_at_create or not kind.has_status:
            return record
        merged = {**record.obj, "metadata": dict(record.obj["metadata"])}
        merged["status"] = {**(record.obj.get("status") or {}), **status}
        return self.store.put(kind.table, record.key, merged)

    def break_watches(self, action: Action, kind: str = "*", user_agent: str = "") -> int:
        """Breaks open watches now: CUT in mid-line, CLOSE properly, GONE with a 410 event. Returns how many."""
        hit = [
            stream
            for stream in self._handlers.watches
            if kind in ("*", stream.kind) and user_agent in stream.user_agent
        ]
        for stream in hit:
            stream.break_now(action)
        return len(hit)

    def open_watches(self, kind: str = "*") -> int:
        return sum(1 for stream in self._handlers.watches if kind in ("*", stream.kind))

    def compact(self, kind: str = "*") -> None:
        """Forgets history: watches and lists from older revisions answer 410 from now on. kind is the plural."""
        for table in self.store.tables():
            if kind in ("*", table.name):
                table.compact()

    def kubeconfig(self) -> Json:
        name = "embedded"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
            "current-context": name,
        }

    def write_kubeconfig(self, path: str | Path) -> Path:
        """Writes a kubeconfig for this server and returns its path."""
        target = Path(path)
        text: Any = yaml.safe_dump(self.kubeconfig(), sort_keys=False)
        target.write_text(text)
        return target
