"""How long device allocation takes: ``python -m e2e.bench.devices``.

Hard cases (tests/dra/hard_cases.py), our time beside the Go allocator's for the same input, and the typical case: one
claim, one device, 500 nodes with 10 devices each. Every number of ours is the minimum of 7 runs; the calibration loop,
a million additions, says how fast the machine was while they were taken.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from e2e.conformity.upstream import Oracle, OracleMissingError, find_oracle
from plugins.dynamic_resources import DynamicResources
from scheduler.api.changes import Change
from scheduler.api.core import Node, Pod
from scheduler.api.kinds import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, Kind, convert
from scheduler.cli.conformity import run_allocate
from scheduler.dra.allocator import Allocated, Allocation
from scheduler.dra.classes import ClassStore
from scheduler.dra.features import Features
from scheduler.dra.ledger import Ledger
from scheduler.dra.requests import Plan, prepare
from scheduler.dra.selectors import SelectorCache
from scheduler.dra.slices import SliceStore
from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import Handle
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info
from tests.dra.hard_cases import CASES

RUNS = 7
NODES, DEVICES = 500, 10
DRIVER = "gpu.example.com"
Json = dict[str, Any]


def calibration_ms() -> float:
    """A million additions."""

    def add() -> None:
        total = 0
        for number in range(1_000_000):
            total += number

    return best_ms(add)


def best_ms(work: Callable[[], object], prepare_run: Callable[[], object] = lambda: None) -> float:
    """The fastest of RUNS runs; ``prepare_run`` is not counted."""
    times = []
    for _ in range(RUNS):
        prepare_run()
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times) * 1000


def hard_cases() -> None:
    """Our time beside upstream's for each hard case."""
    cases = [json.dumps(build()).encode() for build in CASES]
    theirs: list[Json] = [{} for _ in cases]
    try:
        with Oracle(find_oracle(), "allocate") as oracle:
            theirs = oracle.answers(cases)
    except OracleMissingError as error:
        print(f"no upstream times: {error}")
    print(f"{'hard case':28} {'fits':6} {'ours ms':>9} {'upstream ms':>12}")
    for build, case, upstream in zip(CASES, cases, theirs, strict=True):
        answers: list[Json] = []

        def run(line: bytes = case, into: list[Json] = answers) -> None:
            into.append(json.loads(next(run_allocate([line]))))

        ours_ms = best_ms(run)
        kind = upstream.get("error_kind")
        shown = f"> {upstream['elapsed_ms']:.0f}" if kind == "timeout" else f"{upstream.get('elapsed_ms', 0):.1f}"
        verdict = "yes" if answers[0]["allocated"] else "no"
        wrong = "" if answers[0]["allocated"] is CASES[build] else "  WRONG"
        print(f"{build.__name__:28} {verdict:6} {ours_ms:9.1f} {shown:>12}{wrong}")


class World:
    """500 nodes with 10 devices; ``models`` different ones, with ``unique`` serial numbers."""

    def __init__(self, models: int, unique: bool) -> None:
        self.features = Features()
        self.classes, self.ledger = ClassStore(), Ledger()
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        self.classes.apply(
            None, convert(DEVICE_CLASS, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
        )
        self.nodes: list[Node] = [convert(NODE, {"metadata": {"name": f"node-{n}"}}) for n in range(NODES)]
        self._slices = [convert(RESOURCE_SLICE, _slice(n, models, unique)) for n in range(NODES)]
        expression = (
            f'device.attributes["{DRIVER}"].model == "model-0" && '
            f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
        )
        asked = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        request = {"name": "r", "exactly": asked | {"selectors": [{"cel": {"expression": expression}}]}}
        claim = {"metadata": {"name": "c", "namespace": "ns", "uid": "c"}, "spec": {"devices": {"requests": [request]}}}
        self.claim = convert(RESOURCE_CLAIM, claim)
        self.reset()

    def reset(self) -> None:
        """Slices applied and pools built, no selector evaluated."""
        self.slices, self.cache = SliceStore(self.features), SelectorCache()
        for item in self._slices:
            self.slices.apply(None, item)
        for node in self.nodes:
            self.ledger.usage(self.slices.view(node))

    def plan(self) -> Plan:
        """What to allocate."""
        return prepare([self.claim], self.classes, self.features, self.cache)

    def decide(self, nodes: list[Node]) -> int:
        """How many of ``nodes`` fit."""
        plan, fits = self.plan(), 0
        for node in nodes:
            view = self.slices.view(node)
            outcome = Allocation(plan, view, self.ledger.usage(view), self.features).run()
            fits += isinstance(outcome, Allocated)
        return fits


class Cluster:
    """The same devices behind the plugin: what an attempt really asks."""

    def __init__(self, models: int, unique: bool) -> None:
        self.state = ClusterState()
        self.plugin = DynamicResources(Handle(self.state, lambda: "id", None))
        self.revision = 0
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        self.put(DEVICE_CLASS, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
        for number in range(NODES):
            self.put(NODE, {"metadata": {"name": f"node-{number}", "uid": f"node-{number}"}})
            self.put(RESOURCE_SLICE, _slice(number, models, unique))
        asked: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        asked["selectors"] = [{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "model-0"'}}]
        claim = {"metadata": {"name": "c", "namespace": "ns", "uid": "c"}}
        self.put(RESOURCE_CLAIM, claim | {"spec": {"devices": {"requests": [{"name": "r", "exactly": asked}]}}})
        entries = [{"name": "c", "resourceClaimName": "c"}]
        pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "p"}, "spec": {"resourceClaims": entries}}
        self.pod: Pod = convert(POD, pod)
        self.again = convert(RESOURCE_SLICE, _slice(7, models, unique))

    def put(self, kind: Kind, data: Json) -> None:
        """One object appears."""
        self.revision += 1
        self.state.apply(Change(kind, None, convert(kind, data), self.revision))

    def change_one(self) -> None:
        """The slice of one node is published again."""
        self.state.apply(Change(RESOURCE_SLICE, self.again, self.again, self.revision))

    def decide(self) -> int:
        """PreFilter and Filter over all nodes."""
        cycle, nodes = Cycle(self.pod, pod_info(self.pod), self.state), self.state.nodes
        self.plugin.pre_filter(cycle)
        steps = self.plugin.filter_steps(cycle, nodes, nodes.order())
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return int((stop.value == 0).sum())


def _slice(number: int, models: int, unique: bool) -> Json:
    devices = []
    for index in range(DEVICES):
        attributes: Json = {
            "model": {"string": f"model-{(number * DEVICES + index) % models}"},
            "numa": {"int": index % 2},
        }
        if unique:
            attributes["serial"] = {"string": f"{number}-{index}"}
        devices.append({"name": f"gpu-{index}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}})
    pool = {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": f"node-{number}", "pool": pool, "devices": devices}
    return {"metadata": {"name": f"slice-{number}"}, "spec": spec}


def typical() -> None:
    """One claim, one device, all nodes: nothing asked yet; everything asked; one node changed."""
    print(f"\n{NODES} nodes x {DEVICES} devices, one device wanted, ms for all nodes")
    print(f"{'':16} {'cold':>8} {'warm':>8} one node changed, through the plugin")
    for name, models, unique in (("one model", 1, False), ("unique serials", 1, True), ("three models", 3, True)):
        world = World(models, unique)
        cold_ms = best_ms(lambda world=world: world.decide(world.nodes), world.reset)  # type: ignore[misc]  # bound now
        warm_ms = best_ms(lambda world=world: world.decide(world.nodes))  # type: ignore[misc]  # bound now
        cluster = Cluster(models, unique)
        cluster.decide()
        one_ms = best_ms(cluster.decide, cluster.change_one)
        print(f"{name:16} {cold_ms:8.2f} {warm_ms:8.2f} {one_ms:8.3f}")


def main() -> int:
    """Print both tables."""
    print(f"calibration: 1,000,000 additions in {calibration_ms():.1f} ms (minimum of {RUNS})")
    hard_cases()
    typical()
    return 0


if __name__ == "__main__":
    sys.exit(main())
