"""A scheduler service on the embedded API server, for tests of the whole way of a Pod."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from scheduler.app.service import Service
from scheduler.config import load_config
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import insecure
from scheduler.embedded.faults import Fault
from scheduler.embedded.server import EmbeddedServer
from scheduler.queue.pod import Place

Object = dict[str, Any]


@dataclass
class Counts:
    """Counts what a Meter is told, by name."""

    seen: Counter[str] = field(default_factory=Counter)

    def attempt(self, result: str, profile: str, duration_s: float) -> None:
        self.seen[result] += 1

    def group_attempt(self, result: str, profile: str, duration_s: float, algorithm_s: float) -> None:
        self.seen[f"group {result}"] += 1
        assert 0 <= algorithm_s <= duration_s

    def scheduled(self, attempts: int, waited_s: float) -> None:
        self.seen["sli"] += 1

    def scheduled_after_flush(self) -> None:
        self.seen["after flush"] += 1

    def algorithm(self, duration_s: float) -> None:
        self.seen["algorithm"] += 1

    def lost_race(self, profile: str) -> None:
        self.seen["lost"] += 1

    def verified(self, result: str, waited_s: float) -> None:
        self.seen[f"verified {result}"] += 1
        assert waited_s >= 0

    def claim_written(self, operation: str, result: str) -> None:
        self.seen[f"{operation} {result}"] += 1

    def foreign_overlap(self, profile: str, count: int) -> None:
        self.seen["overlap"] += count

    def claim_created(self, status: str) -> None:
        self.seen[f"claim {status}"] += 1

    def broken(self, where: str) -> None:
        self.seen["broken"] += 1

    def permit_waited(self, result: str, duration_s: float) -> None:
        self.seen[f"permit {result}"] += 1

    def preemption_attempt(self) -> None:
        self.seen["preemption attempts"] += 1

    def preemption_begun(self, victims: int) -> None:
        self.seen["victims"] += victims

    def preemption_ended(self, result: str, duration_s: float) -> None:
        self.seen[f"preemption {result}"] += 1

    def incoming(self, place: Place, event_label: str) -> None:
        self.seen[f"incoming {place.value}"] += 1

    def bad_object(self, kind: str) -> None:
        self.seen[f"bad {kind}"] += 1

    def repaired(self, kind: str, count: int) -> None:
        self.seen[f"repaired {kind}"] += count


class Lines:
    """Keeps log lines as (level, event, fields)."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, Object]] = []

    def debug(self, event: str, **fields: Any) -> None:
        self.lines.append(("debug", event, fields))

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append(("info", event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append(("warning", event, fields))

    def error(self, event: str, **fields: Any) -> None:
        self.lines.append(("error", event, fields))


@dataclass
class World:
    """A running server and a running service."""

    server: EmbeddedServer
    service: Service
    counts: Counts
    log: Lines
    client: ApiClient

    async def call(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        """One raw request; the decoded answer."""
        import msgspec

        encoded = None if body is None else msgspec.json.encode(body)
        answer = await self.client.call(method, path, encoded, content_type)
        return msgspec.json.decode(answer.body)

    async def pod(self, name: str, namespace: str = "default") -> Object:
        found: Object = await self.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        return found

    async def bound(self, namespace: str = "default") -> dict[str, str]:
        """Pod name → node of every Pod with a node."""
        listed = await self.call("GET", f"/api/v1/namespaces/{namespace}/pods")
        return {
            item["metadata"]["name"]: item["spec"]["nodeName"]
            for item in listed["items"]
            if item["spec"].get("nodeName")
        }

    async def until(self, check: Callable[[], Any], what: str, timeout_s: float = 10.0) -> None:
        """Poll an async check until it is true."""
        try:
            async with asyncio.timeout(timeout_s):
                while not await check():  # noqa: ASYNC110  # the truth is on the server, nothing here can tell
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(
                f"never happened: {what}\nlog: {self.log.lines[-12:]}\nqueue: {self.service.queue.dump()}"
            ) from None


@asynccontextmanager
async def world(
    objects: list[Object], config: str = "", *, faults: Sequence[Fault] = (), **options: Any
) -> AsyncIterator[World]:
    """Load ``objects``, start the service, give it to the test, and stop everything.

    ``faults`` are in force from the first LIST on.
    """
    server = EmbeddedServer()
    for fault in faults:
        server.faults.add(fault)
    url = await server.start()
    counts, log = Counts(), Lines()
    try:
        server.load(objects)
        async with ApiClient(insecure(url)) as client, ApiClient(insecure(url), user_agent="test") as other:
            service = Service(
                load_config(config),
                client,
                counts,
                log,
                clock=time.time,
                instance=lambda name: f"{name}-test",
                verify_caches=True,
                **options,
            )
            service.start()
            await service.wait_synced()
            running = asyncio.create_task(service.run())
            try:
                yield World(server, service, counts, log, other)
            finally:
                service.stop()
                await asyncio.wait_for(running, 15)
                await service.close(drain=False)
        assert counts.seen["broken"] == 0, [line for line in log.lines if line[0] == "error"]
    finally:
        await server.stop()
