"""The cluster of a chaos run and what happens in it: Pods and claims of two schedulers come and go, drivers restart."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass

from e2e.api import CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES, Api, ApiError, Object
from e2e.driver import Pool, PretendedDriver, add_node
from e2e.objects import claim, claim_template, device, device_class, exactly, pod

NS = "default"
NODE_COUNT = 4
GPUS, SHARES, PARTITIONS = 4, 4, 4
GPU, BIG, PART = "gpu.example.com", "big.example.com", "part.example.com"
OURS, THEIRS = "dra-scheduler", "default-scheduler"
SHARED_CLAIMS = 3
KINDS: dict[str, tuple[str, ...]] = {"gpu": (GPU,), "big": (BIG,), "part": (PART,), "pair": (GPU, PART)}
"""Kind of Pod -> the classes of its claims, one device of each."""


def counters_slice(driver: PretendedDriver, pool: Pool) -> Object:
    """The slice that holds the pool's counters: half as much as all partitions together would take."""
    body = driver.slice_object(pool, 0)
    spec = {key: body["spec"][key] for key in ("driver", "pool", "nodeName")}
    spec["sharedCounters"] = [{"name": "whole", "counters": {"units": {"value": str(PARTITIONS // 2)}}}]
    return {"metadata": {"name": f"{pool.name}-counters"}, "spec": spec}


@dataclass
class Drivers:
    """The three drivers; only the first one restarts."""

    gpu: PretendedDriver
    big: PretendedDriver
    part: PretendedDriver


async def prepare(api: Api) -> Drivers:
    """Nodes, devices of three kinds, classes and templates, and the claims that Pods share."""
    drivers = Drivers(PretendedDriver(api, GPU), PretendedDriver(api, BIG), PretendedDriver(api, PART))
    for name in (GPU, BIG, PART):
        await api.create(DEVICE_CLASSES, device_class(name, f'device.driver == "{name}"'))
    for index in range(NODE_COUNT):
        name = f"node-{index}"
        await add_node(api, name, cpu="64")
        await drivers.gpu.publish_node(name, GPUS, slices=2)
        big = device("big", capacity={"memory": f"{2 * SHARES}Gi"}, allowMultipleAllocations=True)
        await drivers.big.publish(Pool(name, [big], {"nodeName": name}))
        charge = [{"counterSet": "whole", "counters": {"units": {"value": "1"}}}]
        partitions = [device(f"part-{i}", consumesCounters=charge) for i in range(PARTITIONS)]
        pool = Pool(name, partitions, {"nodeName": name})
        body = drivers.part.slice_object(pool, 0)
        body["spec"]["pool"]["resourceSliceCount"] = 2
        await api.create(SLICES, body)
        counters = counters_slice(drivers.part, pool)
        counters["spec"]["pool"]["resourceSliceCount"] = 2
        await api.create(SLICES, counters)
    await api.create(CLAIM_TEMPLATES, claim_template("gpu", exactly(GPU)), NS)
    asked = exactly(BIG, capacity={"requests": {"memory": "2Gi"}})
    await api.create(CLAIM_TEMPLATES, claim_template("big", asked), NS)
    await api.create(CLAIM_TEMPLATES, claim_template("part", exactly(PART)), NS)
    for index in range(SHARED_CLAIMS):
        await api.create(CLAIMS, claim(f"shared-{index}", exactly(GPU)), NS)
    return drivers


NAMESAKE_S = 0.2


class Load:
    """Changes the cluster at random, until cancelled. ``deleted``: uids of the Pods it has deleted.

    ``counts``: what was done. Everything goes to the API server directly, never through the proxy.
    """

    def __init__(self, api: Api, drivers: Drivers, rng: random.Random) -> None:
        self._api, self._drivers, self._rng = api, drivers, rng
        self._number = 0
        self._pods: list[tuple[str, str]] = []  # name and uid
        self.deleted: set[str] = set()
        self.counts: Counter[str] = Counter()

    async def run(self, pause_s: float) -> None:
        """One change after the other with random pauses of this mean."""
        changes = [
            (10.0, self._create),
            (3.0, self._delete),
            (2.0, self._delete_now),
            (2.0, self._recreate),
            (1.2, self._flood),
            (0.7, self._restart_driver),
            (0.5, self._shared),
            (0.3, self._cordon),
        ]
        weights = [weight for weight, _ in changes]
        while True:
            (change,) = self._rng.choices([change for _, change in changes], weights)
            try:
                await change()
            except ApiError as error:
                # 404, 409: gone or there already, both schedulers and controllers work on the same objects.
                if error.status not in (404, 409, 422):
                    raise
            await asyncio.sleep(self._rng.expovariate(1.0 / pause_s))

    def body(self, name: str) -> Object:
        """A random Pod."""
        scheduler = OURS if self._rng.random() < 0.65 else THEIRS
        if self._rng.random() < 0.12:
            return pod(name, scheduler=OURS, claims={"gpu": f"shared-{self._rng.randrange(SHARED_CLAIMS)}"})
        kind = self._rng.choice(list(KINDS))
        templates = {driver.split(".")[0]: driver.split(".")[0] for driver in KINDS[kind]}
        return pod(name, scheduler=scheduler, templates=templates, labels={"kind": kind})

    async def _create(self) -> None:
        self._number += 1
        name = f"pod-{self._number}"
        await self._make(name)
        self.counts["Pods created"] += 1

    async def _make(self, name: str) -> None:
        made = await self._api.create(PODS, self.body(name), NS)
        self._pods.append((name, made["metadata"]["uid"]))

    async def _flood(self) -> None:
        """Both schedulers at once on the same devices."""
        await asyncio.gather(*(self._create() for _ in range(8)))

    async def _end_one(self, grace_period_s: int | None = None) -> str | None:
        """Delete a random Pod; its name, None when there is none. Raises ApiError, also when it was gone already.

        One that is there just before counts as deleted whatever the answer to the request is: it may have been sent
        twice, or have taken effect in part.
        """
        if not self._pods:
            return None
        name, uid = self._pods.pop(self._rng.randrange(len(self._pods)))
        await self._api.get(PODS, name, NS)
        self.deleted.add(uid)  # before the request: the load may be cancelled before it sees the answer
        await self._api.delete(PODS, name, NS, grace_period_s=grace_period_s)
        return name

    async def _delete(self) -> None:
        if await self._end_one() is not None:
            self.counts["Pods deleted"] += 1

    async def _delete_now(self) -> None:
        if await self._end_one(grace_period_s=0) is not None:
            self.counts["Pods deleted by force"] += 1

    async def _recreate(self) -> None:
        """Gone and there again under the same name before any watch could show either."""
        if (name := await self._end_one(grace_period_s=0)) is not None:
            await self._make(name)
            self.counts["Pods deleted and created again under one name"] += 1
            await self._outlived(*self._pods[-1])

    async def _outlived(self, name: str, uid: str) -> None:
        """A deletion of its namesake that is still under way may take the new Pod along, at once: seen once, in the
        revision after its creation, before any scheduler had looked at it. That is nothing a scheduler has lost.
        """
        await asyncio.sleep(NAMESAKE_S)
        if await self._api.find(PODS, name, NS) is None:
            self.deleted.add(uid)

    async def _shared(self) -> None:
        """A claim that Pods share is deleted (it stays while it is reserved) or made again."""
        name = f"shared-{self._rng.randrange(SHARED_CLAIMS)}"
        if await self._api.find(CLAIMS, name, NS) is not None:
            await self._api.delete(CLAIMS, name, NS)
            self.counts["claims deleted"] += 1
        else:
            await self.restore_shared()

    async def restore_shared(self) -> None:
        """Every claim that Pods may name exists; one that is being deleted is left alone."""
        for index in range(SHARED_CLAIMS):
            if await self._api.find(CLAIMS, f"shared-{index}", NS) is None:
                await self._api.create(CLAIMS, claim(f"shared-{index}", exactly(GPU)), NS)
                self.counts["claims created"] += 1

    async def _restart_driver(self) -> None:
        """The next generation, whole or half of it first, or slices that vanish for a moment."""
        name = f"node-{self._rng.randrange(NODE_COUNT)}"
        driver = self._drivers.gpu
        how = self._rng.choice(["bump", "half", "withdraw"])
        if how == "bump":
            await driver.bump(name)
        else:
            await (driver.publish_half(name) if how == "half" else driver.withdraw(name))
            await asyncio.sleep(self._rng.uniform(0.05, 0.5))
            await driver.restore(name)
        self.counts["driver restarts"] += 1

    async def _cordon(self) -> None:
        name = f"node-{self._rng.randrange(NODE_COUNT)}"
        await self._api.patch(NODES, name, {"spec": {"unschedulable": self._rng.random() < 0.5}})
        self.counts["nodes cordoned or not"] += 1

    async def repair(self) -> None:
        """What the load has broken is whole again: slices, nodes, shared claims. Pods stay as they are."""
        for index in range(NODE_COUNT):
            await self._drivers.gpu.restore(f"node-{index}")
            await self._api.patch(NODES, f"node-{index}", {"spec": {"unschedulable": None}})
        await self.restore_shared()
