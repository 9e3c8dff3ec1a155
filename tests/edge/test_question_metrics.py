"""The inventory as metrics: counted beside the loop, at most now and then, grouped as Prometheus wants it."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from scheduler.edge.question_metrics import INVENTORY_EVERY_S, QuestionMetrics
from scheduler.explain.inventory_facts import ClaimNote, Inventory, Line


class World:
    """An inventory that can be changed, and a clock."""

    def __init__(self, **options: object) -> None:
        self.now, self.taken, self.troubles = 0.0, 0, list[str]()
        self.broken = False
        line = Line("gpu.example.com", "A100", total=4, used=1, free=3, largest=2, remainder={"memory": "80Gi"})
        self.inventory = Inventory([line], [ClaimNote("ns/x", "leaks")], namespaces={"team": {"gpu.example.com": 1}})
        self.registry = CollectorRegistry()
        self.metrics = QuestionMetrics(self.registry, lambda: self.now, on_trouble=self.troubles.append, **options)  # type: ignore[arg-type]  # the caller's keywords
        self.metrics.inventory_from(self.take)

    async def take(self) -> Inventory:
        self.taken += 1
        await asyncio.sleep(0)
        if self.broken:
            raise ValueError("odd device")
        return self.inventory

    async def scrape(self) -> str:
        text = generate_latest(self.registry).decode()
        for _ in range(3):
            await asyncio.sleep(0)
        return text


async def test_a_scrape_gets_the_last_inventory() -> None:
    """The first scrape begins to count, the next one shows it; in between it is not counted again and again."""
    world = World()
    assert "dra_scheduler_inventory" not in await world.scrape()
    text = await world.scrape()
    assert 'dra_scheduler_inventory_devices{driver="gpu.example.com",model="A100",state="free"} 3.0' in text
    assert "dra_scheduler_inventory_claims_leaked 1.0" in text
    assert 'dra_scheduler_inventory_namespace_devices{driver="gpu.example.com",namespace="team"} 1.0' in text
    assert text.count("# TYPE dra_scheduler_inventory_devices gauge") == 1
    assert world.taken == 1
    world.now = INVENTORY_EVERY_S
    world.inventory.lines[0].free = 0
    await world.scrape()
    assert 'state="free"} 0.0' in await world.scrape()
    assert world.taken == 2


async def test_an_inventory_that_breaks_is_told() -> None:
    """The other metrics go on; the old numbers are not shown any more."""
    world = World()
    await world.scrape()
    world.now, world.broken = INVENTORY_EVERY_S, True
    await world.scrape()
    text = await world.scrape()
    assert "dra_scheduler_inventory_devices" not in text
    assert "dra_scheduler_questions_total" in text
    assert world.troubles == ["the inventory could not be counted: ValueError: odd device"]


async def test_disabled_names_are_left_out() -> None:
    """--disabled-metrics counts here, too."""
    world = World(disabled=("dra_scheduler_inventory_devices",))
    await world.scrape()
    text = await world.scrape()
    assert "dra_scheduler_inventory_devices{" not in text
    assert "dra_scheduler_inventory_devices_total{" in text


def test_without_a_loop_the_last_one_will_do() -> None:
    """Whoever renders outside of the loop gets what there is, and no error."""
    world = World()
    assert "dra_scheduler_questions_total" in generate_latest(world.registry).decode()
    assert world.taken == 0


async def test_questions_are_counted() -> None:
    """By kind and code."""
    world = World()
    world.metrics.answered("explanation", 200)
    world.metrics.answered("explanation", 200)
    world.metrics.answered("map", 403)
    text = await world.scrape()
    assert 'dra_scheduler_questions_total{code="200",question="explanation"} 2.0' in text
    assert 'dra_scheduler_questions_total{code="403",question="map"} 1.0' in text
