"""The pretended kubelet on the embedded server: it keeps up through every kind of lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from scheduler.embedded import EmbeddedServer, Fault
from scheduler.embedded.faults import Action
from scheduler.embedded.kubelet import PretendedKubelet

Object = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass
class Cluster:
    """The server, a session on it, and shorthands."""

    server: EmbeddedServer
    session: aiohttp.ClientSession
    kubelet: PretendedKubelet

    async def pod(self, name: str) -> Object | None:
        async with self.session.get(f"{PODS}/{name}") as answer:
            return await answer.json() if answer.status == 200 else None

    async def phase(self, name: str) -> str:
        found = await self.pod(name)
        return "" if found is None else found["status"]["phase"]

    async def until_phase(self, name: str, phase: str) -> None:
        await until(lambda: self._has_phase(name, phase))

    async def _has_phase(self, name: str, phase: str) -> bool:
        return await self.phase(name) == phase

    def bound(self, name: str, **spec: Any) -> None:
        """A Pod that somebody bound to the node."""
        container = {"name": "c", "image": "i"}
        body = {"containers": [container], "nodeName": "n", **spec}
        metadata = {"name": name, "namespace": "default"}
        self.server.load([{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}])


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait for an answer over HTTP: at most 5 s."""
    async with asyncio.timeout(5):
        while True:
            if await check():
                return
            await asyncio.sleep(0.01)


async def hurried_sleep(_: float) -> None:
    """The kubelet's clock in these tests: no pause lasts."""
    await asyncio.sleep(0.005)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A server with one node of two Pods, and the kubelet at work."""
    server = EmbeddedServer(seed=1)
    url = await server.start()
    resources = {"cpu": "4", "memory": "8Gi", "pods": "2"}
    status = {"allocatable": resources, "capacity": resources}
    server.load([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status}])
    async with (
        aiohttp.ClientSession(url, headers={"User-Agent": "kubelet"}) as session,
        PretendedKubelet(session, sleep=hurried_sleep, now=lambda: NOW) as kubelet,
    ):
        yield Cluster(server, session, kubelet)
    await server.stop()


async def test_runs_and_finishes(cluster: Cluster) -> None:
    """A bound Pod runs with an address and ends when told."""
    cluster.bound("p")
    await cluster.until_phase("p", "Running")
    status = (await cluster.pod("p") or {})["status"]
    assert (status["startTime"], status["podIP"]) == ("2030-01-01T00:00:00Z", "10.0.0.1")
    assert cluster.kubelet.running == {"default/p"}
    await cluster.kubelet.finish("default", "p", "Failed")
    ended = (await cluster.pod("p") or {})["status"]
    assert ended["phase"] == "Failed"
    assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1
    with pytest.raises(KeyError):
        await cluster.kubelet.finish("default", "p")


@pytest.mark.parametrize("action", [Action.CUT, Action.CLOSE, Action.GONE])
async def test_goes_on_after_a_broken_watch(cluster: Cluster, action: Action) -> None:
    """Cut in mid-line, closed, or told 410: Pods bound afterwards run, and those that ran are not lost."""
    cluster.bound("before")
    await cluster.until_phase("before", "Running")
    assert cluster.server.break_watches(action, "pods") == 1
    cluster.bound("after")
    await cluster.until_phase("after", "Running")
    assert cluster.kubelet.running == {"default/before", "default/after"}
    assert cluster.kubelet.complaints() == []


async def test_learns_from_a_list_what_vanished_while_it_was_blind(cluster: Cluster) -> None:
    """Room of Pods removed during an outage is free again, although no DELETED event arrived."""
    for name in ("a", "b"):
        cluster.bound(name)
        await cluster.until_phase(name, "Running")
    blind = cluster.server.faults.add(Fault(Action.ANSWER, verb="watch", kind="pods", times=None, code=503))
    cluster.server.break_watches(Action.CLOSE, "pods")
    async with cluster.session.delete(f"{PODS}/a", json={"gracePeriodSeconds": 0}) as answer:
        assert answer.status == 200
    cluster.bound("c")
    cluster.server.compact("pods")
    blind.times = 0
    await cluster.until_phase("c", "Running")
    assert cluster.kubelet.running == {"default/b", "default/c"}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Action.ANSWER, verb="patch", kind="pods", times=3, code=500),
        Fault(Action.ANSWER, verb="patch", kind="pods", times=2, code=429),
        Fault(Action.ANSWER, verb="patch", kind="pods", times=2, code=409),
        Fault(Action.DROP_BEFORE, verb="patch", kind="pods", times=2),
        Fault(Action.DROP_AFTER, verb="patch", kind="pods", times=2),
    ],
    ids=lambda fault: f"{fault.action.name}-{fault.code}",
)
async def test_a_failed_write_is_repeated(cluster: Cluster, fault: Fault) -> None:
    """Errors, conflicts and lost answers delay the status, of a start and of an end; nothing is lost."""
    cluster.server.faults.add(fault)
    cluster.bound("p")
    await cluster.until_phase("p", "Running")
    fault.times = (fault.times or 0) + fault.hits
    await cluster.kubelet.finish("default", "p")
    assert await cluster.phase("p") == "Succeeded"


async def test_rejects_what_the_node_cannot_hold(cluster: Cluster) -> None:
    """The third Pod on a node for two fails with OutOfpods, even when the first try to say so fails."""
    for name in ("a", "b"):
        cluster.bound(name)
        await cluster.until_phase(name, "Running")
    cluster.server.faults.add(Fault(Action.ANSWER, verb="patch", kind="pods", times=2, code=500))
    cluster.bound("c")
    await cluster.until_phase("c", "Failed")
    status = (await cluster.pod("c") or {})["status"]
    assert status["reason"] == "OutOfpods"
    assert [verdict.reason for verdict in cluster.kubelet.rejections] == ["OutOfpods"]


async def test_a_node_that_grew_a_moment_ago_admits(cluster: Cluster) -> None:
    """When its copy of the node is old the kubelet asks the server before it rejects."""
    cluster.server.faults.add(Fault(Action.ANSWER, verb="watch", kind="nodes", times=None, code=503))
    cluster.server.break_watches(Action.CLOSE, "nodes")
    grown = {"status": {"allocatable": {"pods": "3"}}}
    merge = {"Content-Type": "application/merge-patch+json"}
    async with cluster.session.patch("/api/v1/nodes/n/status", json=grown, headers=merge) as answer:
        assert answer.status == 200
    for name in ("a", "b", "c"):
        cluster.bound(name)
        await cluster.until_phase(name, "Running")


async def test_deletion_is_finalised_and_room_is_free(cluster: Cluster) -> None:
    """Deleted Pods disappear; a successor of the same name is another Pod and runs."""
    for _ in range(3):
        cluster.bound("p")
        await cluster.until_phase("p", "Running")
        async with cluster.session.delete(f"{PODS}/p") as answer:
            assert answer.status == 200
        await until(lambda: _gone(cluster, "p"))
    assert cluster.kubelet.running == set()
    assert cluster.kubelet.complaints() == []


async def _gone(cluster: Cluster, name: str) -> bool:
    return await cluster.pod(name) is None


async def test_a_node_that_comes_back_knows_its_running_pods(cluster: Cluster) -> None:
    """Node deleted and added under the same name: what runs there still takes its room."""
    for name in ("a", "b"):
        cluster.bound(name)
        await cluster.until_phase(name, "Running")
    async with cluster.session.get("/api/v1/nodes/n") as answer:
        node = await answer.json()
    async with cluster.session.delete("/api/v1/nodes/n") as answer:
        assert answer.status == 200
    del node["metadata"]["resourceVersion"], node["metadata"]["uid"]
    cluster.server.load([node])
    cluster.bound("c")
    await cluster.until_phase("c", "Failed")
    assert [verdict.reason for verdict in cluster.kubelet.rejections] == ["OutOfpods"]


async def test_another_kubelet_takes_over_what_runs(cluster: Cluster) -> None:
    """A kubelet that starts later counts running Pods without judging them again."""
    for name in ("a", "b"):
        cluster.bound(name)
        await cluster.until_phase(name, "Running")
    async with PretendedKubelet(cluster.session, sleep=hurried_sleep) as second:
        await until(lambda: _runs(second, {"default/a", "default/b"}))
        assert second.complaints() == []


async def _runs(kubelet: PretendedKubelet, names: set[str]) -> bool:
    return kubelet.running == names


async def test_a_server_that_is_away_for_a_while(cluster: Cluster) -> None:
    """Stop and start of the server on its port: the kubelet is back by itself."""
    port = int(cluster.server.url.rsplit(":", 1)[1])
    await cluster.server.stop()
    await asyncio.sleep(0.05)  # several vain tries
    cluster.bound("p")
    await cluster.server.start(port)
    await cluster.until_phase("p", "Running")
