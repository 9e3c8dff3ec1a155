"""What single steps cost in this process: ``python -m e2e.bench.micro [--nodes 100,1000,5000,15000]``.

Decode and apply of one Pod event, one decision per kind of Pod (with nothing but what it changes itself: one node
between two Pods), the queue's way of one Pod, one CEL selector on one device. Microseconds of this thread's CPU, the
median of many; the calibration loop, a million additions, says how fast the machine was meanwhile. ``rows`` is how
often a plugin was asked about a node, per Pod: it must not grow with the cluster.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from e2e.bench.devices import calibration_ms
from e2e.bench.workloads import CLASS, NAMESPACE, WORKLOADS, Object, Workload, node, slices
from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, convert, decode
from scheduler.api.workloads import SERVICE
from scheduler.app.profiles import build_profiles, queue_hooks
from scheduler.cel import compile_selector
from scheduler.config import SchedulerConfig, load_config
from scheduler.cycle.attempt import Attempt, Rotation, decide
from scheduler.cycle.decision import Placed
from scheduler.framework.profile import Profile
from scheduler.framework.runner import run_reserve
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster import ClusterState

SIZES = (100, 1000, 5000, 15_000)
DECIDED = ("plain", "service", "spread", "preferred-affinity", "anti-affinity", "device", "device-cel", "device-match")
WARM_UP = 20


class Bench:
    """A ClusterState of ``nodes`` nodes for one workload, and the default profile on it."""

    def __init__(self, workload: Workload, nodes: int, config: SchedulerConfig | None = None) -> None:
        self.state, self.workload = ClusterState(), workload
        ids = itertools.count()
        profiles = build_profiles(config or load_config(""), self.state, lambda: f"id-{next(ids)}", self.state.features)
        self.profile: Profile = next(iter(profiles.values()))
        self.hooks = queue_hooks(profiles)
        self.revision = 0
        self.templates = {item["metadata"]["name"]: item["spec"]["spec"] for item in workload.templates}
        for index in range(nodes):
            self.put(NODE, node(index))
        self._put_devices(nodes)
        for service in workload.services:
            self.put(SERVICE, service)

    def _put_devices(self, nodes: int) -> None:
        if not self.workload.devices:
            return
        selector = {"cel": {"expression": f'device.driver == "{CLASS}"'}}
        self.put(DEVICE_CLASS, {"metadata": {"name": CLASS}, "spec": {"selectors": [selector]}})
        for item in _slices_of(self.workload, nodes):
            self.put(RESOURCE_SLICE, item)

    def put(self, kind: Any, data: Object) -> Any:
        """One object appears."""
        self.revision += 1
        data = data | {"metadata": {"uid": data["metadata"]["name"], **data["metadata"]}}
        found = convert(kind, data)
        self.state.apply(Change(kind, None, found, self.revision))
        return found

    def pod(self, index: int) -> Pod:
        """Pod number ``index``, known to the state, its claims too."""
        item = self.workload.pod(index)
        item["spec"]["schedulerName"] = self.profile.name
        for entry in item["spec"].get("resourceClaims", ()):
            name = f"{item['metadata']['name']}-{entry['name']}"
            owner = {"metadata": {"name": name, "namespace": NAMESPACE}}
            owner["metadata"]["ownerReferences"] = [  # type: ignore[assignment]  # a plain JSON object
                {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": item["metadata"]["name"], "controller": True}
            ]
            self.put(RESOURCE_CLAIM, owner | {"spec": self.templates[entry["resourceClaimTemplateName"]]})
            item["status"] = {"resourceClaimStatuses": [{"name": entry["name"], "resourceClaimName": name}]}
        pod: Pod = self.put(POD, item)
        return pod

    def place(self, pod: Pod) -> float:
        """Decide and assume one Pod; CPU seconds of the decision."""
        started = time.thread_time()
        decision = decide(Attempt(self.profile, pod, self.state, now=0.0, rotation=Rotation()))
        spent_s = time.thread_time() - started
        if not isinstance(decision, Placed):
            raise SystemExit(f"{self.workload.name}: {decision}")
        self.state.assume(pod, decision.node)
        run_reserve(self.profile, decision.cycle, decision.node)
        return spent_s


def _slices_of(workload: Workload, nodes: int) -> Iterator[Object]:
    return slices(Workload(workload.name, nodes, 0, workload.pod, devices=workload.devices, device=workload.device))


def decisions(workload: Workload, nodes: int, pods: int) -> tuple[float, float]:
    """(median CPU microseconds, rows asked about per Pod)."""
    bench = Bench(workload, nodes)
    for index in range(WARM_UP):
        bench.place(bench.pod(index))
    before = bench.profile.classes.evaluations
    times_s = [bench.place(bench.pod(WARM_UP + index)) for index in range(pods)]
    return statistics.median(times_s) * 1e6, (bench.profile.classes.evaluations - before) / pods


def each(work: Callable[[Any], object], items: Sequence[Any]) -> float:
    """Median CPU microseconds of ``work`` over ``items``."""
    times_s = []
    for item in items:
        started = time.thread_time()
        work(item)
        times_s.append(time.thread_time() - started)
    return statistics.median(times_s) * 1e6


def single_steps(nodes: int, pods: int) -> dict[str, float]:
    """Decode, apply, assume and queue of one Pod; microseconds."""
    bench = Bench(WORKLOADS["plain"], nodes)
    raw = [msgspec.json.encode(_named(bench.workload.pod(index), bench.profile.name)) for index in range(pods)]
    decoded = [decode(POD, line) for line in raw]
    found = {"decode": each(lambda line: decode(POD, line), raw)}
    found["apply"] = each(lambda pod: bench.state.apply(Change(POD, None, pod)), decoded)
    places = iter(range(pods))
    found["assume"] = each(lambda pod: bench.state.assume(pod, f"node-{next(places) % nodes}"), decoded)
    queue = SchedulingQueue(bench.hooks, bench.profile.queue_sort.sort_key)

    def through_queue(pod: Pod) -> None:
        queue.add(pod, 0.0)
        queued = queue.pop(0.0)
        if queued is None:
            raise SystemExit(f"{pod.key} did not come out of the queue")
        queue.done(queued.uid)

    found["queue"] = each(through_queue, decoded)
    return found


def _named(pod: Object, scheduler: str) -> Object:
    pod["metadata"]["uid"] = pod["metadata"]["name"]
    pod["spec"]["schedulerName"] = scheduler
    return pod


def selector_us(runs: int) -> float:
    """The selector of ``device-cel`` on one device, nothing remembered."""
    bench = Bench(WORKLOADS["device-cel"], 1)
    template = WORKLOADS["device-cel"].templates[0]
    text = template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["selectors"][0]["cel"]["expression"]
    selector = compile_selector(text)
    view = bench.state.devices.slices.view(bench.state.nodes.node(0))
    return each(selector.evaluate, [view.devices[0].cel] * runs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default=",".join(map(str, SIZES)), help="sizes of the cluster")
    parser.add_argument("--pods", type=int, default=200, help="Pods per number")
    parser.add_argument("--only", default=",".join(DECIDED), help="workloads to decide Pods of")
    chosen = parser.parse_args(arguments)
    sizes = [int(size) for size in chosen.nodes.split(",")]
    print(f"calibration: 1,000,000 additions in {calibration_ms():.1f} ms; median CPU us")
    print(f"one CEL selector on one device {selector_us(chosen.pods):.1f}")
    for nodes in sizes:
        steps = single_steps(nodes, chosen.pods)
        print(f"{nodes:6} nodes  " + "  ".join(f"{name} {us:.1f}" for name, us in steps.items()))
    print(f"\n{'decide one Pod':20}" + "".join(f"{nodes:>16}" for nodes in sizes) + "   us (rows)")
    for name in chosen.only.split(","):
        cells = []
        for nodes in sizes:
            us, rows = decisions(WORKLOADS[name], nodes, chosen.pods)
            cells.append(f"{us:.0f} ({rows:.1f})")
        print(f"{name:20}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
