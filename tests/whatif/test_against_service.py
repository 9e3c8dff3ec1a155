"""What-if and the running scheduler on the embedded API server: the same Pods, the same uids, the same end.

The dump is taken before the scheduler starts, so that even what depends on a Pod's uid is the same.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from scheduler.api.versions import ResourceKinds
from scheduler.app.service import Service
from scheduler.app.snapshot import list_items, objects_of
from scheduler.app.whatif import Question, answer
from scheduler.config import load_config
from scheduler.dra.features import Features
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import insecure
from scheduler.embedded.server import EmbeddedServer
from scheduler.whatif.difference import Difference
from tests.app.objects import claim, gpu_class, gpu_slice, node, pod, template
from tests.app.world import Counts, Lines
from tests.whatif.worlds import Object

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
"""
ZONE = "topology.kubernetes.io/zone"
SETTLED_LOOKS = 3


def drawn(seed: int) -> list[Object]:
    """A cluster with some Pods on nodes and more that wait, in order of their names."""
    rng = random.Random(seed)
    items: list[Object] = [gpu_class(), template("one"), template("two", 2), claim("shared"), *map(_priority, (5, 9))]
    for number in range(rng.randint(1, 4)):
        made = node(f"n{number}", cpu=rng.choice(["1", "2", "4"]))
        made["metadata"]["labels"][ZONE] = f"z{number % 2}"
        if rng.random() < 0.2:
            made["spec"] = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
        items += [made, *([gpu_slice(f"n{number}", rng.randint(1, 3))] if rng.random() < 0.8 else [])]
        if rng.random() < 0.5:
            items.append(_drawn_pod(rng, f"a-{number}", nodeName=f"n{number}"))
    return [*items, *(_drawn_pod(rng, f"p-{number:02}", devices=True) for number in range(rng.randint(1, 9)))]


def _priority(value: int) -> Object:
    metadata = {"name": f"p{value}"}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value}


def _drawn_pod(rng: random.Random, name: str, *, devices: bool = False, **spec: Any) -> Object:
    fields: Object = {
        "cpu": rng.choice(["100m", "500m", "900m"]),
        "priorityClassName": rng.choice(["", "", "p5", "p9"]),
    }
    if devices:
        fields |= rng.choice(
            [{}, {}, {"template": "one"}, {"template": "one"}, {"template": "two"}, {"claim": "shared"}]
        )
    app = rng.choice(["a", "b"])
    selector = {"matchLabels": {"app": app}}
    if rng.random() < 0.25:
        fields["topologySpreadConstraints"] = [
            {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        ]
    if rng.random() < 0.2:
        kind = rng.choice(["podAffinity", "podAntiAffinity"])
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
        fields["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if rng.random() < 0.2:
        fields["tolerations"] = [{"key": "k", "operator": "Exists"}]
    made = pod(name, terminationGracePeriodSeconds=0, **fields, **spec)
    made["metadata"]["labels"] = {"app": rng.choice(["a", "b"])}
    return made


async def outcomes(items: list[Object]) -> tuple[Difference, dict[str, tuple[str, list[str]]]]:
    """What was imagined, and (node, devices) of every Pod that then was there.

    The scheduler meets the Pods one after the other, as in life, but decides only once the dump is taken.
    """
    server = EmbeddedServer()
    url = await server.start()
    go = False
    try:
        server.load([item for item in items if item["kind"] != "Pod"])
        async with ApiClient(insecure(url)) as client:
            service = Service(load_config(CONFIG), client, Counts(), Lines(), clock=time.time, instance=str,
                              may_decide=lambda: go, verify_caches=True)  # fmt: skip
            service.start()
            await service.wait_synced()
            running = asyncio.create_task(service.run())
            for item in items:
                if item["kind"] == "Pod":
                    server.load([item])
                    await _seen(server, service, item["metadata"]["name"])
            listed, problems = await list_items(client, ResourceKinds(), Features())
            assert not problems
            found = await asyncio.to_thread(imagine, listed)
            go = True
            await _settle(service)
            service.stop()
            await running
            await service.close()
            return found, await _real(client)
    finally:
        await server.stop()


async def _seen(server: EmbeddedServer, service: Service, name: str) -> None:
    """The Pod has its claims, and the scheduler knows it with them."""

    def known() -> bool:
        record = server.store.get("pods", ("default", name))
        if record is None:
            return False
        uid = record.obj["metadata"]["uid"]
        seen = service.state.pods.get(uid)
        queued = service.queue.get(uid)
        return seen is not None and (bool(seen.spec.nodeName) or (queued is not None and not queued.gated))

    async with asyncio.timeout(10):
        while not known():  # noqa: ASYNC110  # the truth is in the store, nothing here can tell
            await asyncio.sleep(0.002)


def imagine(listed: list[Any]) -> Difference:
    """The answer about LISTs, until nothing changes."""
    config = load_config(CONFIG)
    objects = objects_of(listed, Features(), live=True)
    return answer(Question(objects, config, Features(), (), time.time(), True, lambda path: config))


async def _settle(service: Service) -> None:
    """Until nothing is queued, written or about to be seen, several looks in a row."""
    quiet = 0
    async with asyncio.timeout(30):
        while quiet < SETTLED_LOOKS:
            counts = service.queue.counts()
            busy = counts["active"] + counts["backoff"] + service.loop.commit_count + service.state.assumed_count()
            busy += service.queue.in_flight_events()["PodPopped"] + sum(
                queued is None
                for uid, known in service.state.pods.items()
                if not known.spec.nodeName
                for queued in [service.queue.get(uid)]
            )
            quiet = 0 if busy else quiet + 1
            await asyncio.sleep(0.05)


async def _real(client: ApiClient) -> dict[str, tuple[str, list[str]]]:
    listed, _ = await list_items(client, ResourceKinds(), Features())
    objects = objects_of(listed, Features(), live=True)
    claims = {one.key: one for one in objects.of("ResourceClaim")}
    found = {}
    for one in objects.of("Pod"):
        generated = {entry.name: entry.resourceClaimName for entry in one.status.resourceClaimStatuses}
        names = [entry.resourceClaimName or generated.get(entry.name) for entry in one.spec.resourceClaims]
        given = [claims[f"default/{name}"].status.allocation for name in names] if one.spec.nodeName else []
        devices = [f"{r.driver}/{r.pool}/{r.device}" for each in given if each for r in each.devices.results]
        found[one.key] = (one.spec.nodeName, devices)
    return found


async def compare(seed: int) -> None:
    """One case."""
    items = drawn(seed)
    found, real = await outcomes(items)
    expected = {f"default/{item['metadata']['name']}": (item["spec"].get("nodeName", ""), []) for item in items
                if item["kind"] == "Pod"}  # fmt: skip
    for change in found.changes:
        if change.after is None:
            del expected[change.pod]
        else:
            devices = [device for given in change.after.devices.values() for device in given]
            expected[change.pod] = (change.after.node, devices)
    assert real == expected, f"seed {seed}"


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_imagined_happens(seed: int) -> None:
    """Nodes and devices of all Pods, preempted ones included."""
    await compare(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
async def test_what_is_imagined_happens_in_many_clusters(seed: int) -> None:
    """The same with many more."""
    await compare(seed)
