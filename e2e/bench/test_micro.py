"""What single steps cost: ``make bench-micro``, in CPU of this thread (pytest-benchmark; not part of ``make test``).

Decode and apply of one Pod event, assume, the queue's way of one Pod, one decision per kind of Pod (with nothing but
what it changes itself: one node between two Pods), one CEL selector on one device; in clusters of 100 to 15,000 nodes.
``rows`` is how often a plugin was asked about a node, per Pod: it must not grow with the cluster (tests/bench).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from e2e.bench.micro import DECIDED, Bench, warm
from e2e.bench.workloads import CLASS, WORKLOADS, Object
from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import POD, decode
from scheduler.cel import compile_selector
from scheduler.queue.scheduling_queue import SchedulingQueue

SIZES = (100, 1000, 5000, 15_000)
ROUNDS = 200
sizes = pytest.mark.parametrize("nodes", SIZES)


@sizes
@pytest.mark.parametrize("name", DECIDED)
def test_decide(benchmark: BenchmarkFixture, name: str, nodes: int) -> None:
    """From a Pod that is known to the node it gets; assumed and reserved between two rounds."""
    bench, numbers = warm(WORKLOADS[name], nodes)
    before = bench.profile.classes.evaluations

    def unseen() -> tuple[tuple[Pod], dict[str, Any]]:
        return (bench.pod(next(numbers)),), {}

    benchmark.group = f"decide: {name}"
    benchmark.pedantic(bench.place, setup=unseen, rounds=ROUNDS)
    benchmark.extra_info["rows"] = (bench.profile.classes.evaluations - before) / ROUNDS


class Events:
    """Pods of a cluster as their events carry them, one after another without end."""

    def __init__(self, nodes: int) -> None:
        self.bench = Bench(WORKLOADS["plain"], nodes)
        self._numbers = itertools.count()

    def line(self) -> bytes:
        """The JSON of a Pod that was not there before."""
        pod: Object = self.bench.workload.pod(next(self._numbers))
        pod["metadata"]["uid"] = pod["metadata"]["name"]
        pod["spec"]["schedulerName"] = self.bench.profile.name
        return msgspec.json.encode(pod)

    def pod(self) -> Pod:
        """The same, decoded."""
        pod: Pod = decode(POD, self.line())
        return pod


def each(benchmark: BenchmarkFixture, group: str, work: Callable[..., Any], make: Callable[[], Any]) -> None:
    """Time ``work`` on what ``make`` gives, fresh for every round."""
    benchmark.group = group
    benchmark.pedantic(work, setup=lambda: ((make(),), {}), rounds=ROUNDS, warmup_rounds=10)


@sizes
def test_decode(benchmark: BenchmarkFixture, nodes: int) -> None:
    """The JSON of one Pod into its struct."""
    each(benchmark, "decode", lambda line: decode(POD, line), Events(nodes).line)


@sizes
def test_apply(benchmark: BenchmarkFixture, nodes: int) -> None:
    """A Pod appears in the state."""
    events = Events(nodes)
    each(benchmark, "apply", lambda pod: events.bench.state.apply(Change(POD, None, pod)), events.pod)


@sizes
def test_assume(benchmark: BenchmarkFixture, nodes: int) -> None:
    """A Pod counts on its node."""
    events, places = Events(nodes), itertools.count()

    def known() -> Pod:
        pod = events.pod()
        events.bench.state.apply(Change(POD, None, pod))
        return pod

    each(benchmark, "assume", lambda pod: events.bench.state.assume(pod, f"node-{next(places) % nodes}"), known)


@sizes
def test_queue(benchmark: BenchmarkFixture, nodes: int) -> None:
    """A Pod goes through the queue."""
    events = Events(nodes)
    queue = SchedulingQueue(events.bench.hooks, events.bench.profile.queue_sort.sort_key)

    def through(pod: Pod) -> None:
        queue.add(pod, 0.0)
        queued = queue.pop(0.0)
        assert queued is not None, f"{pod.key} did not come out of the queue"
        queue.done(queued.uid)

    each(benchmark, "queue", through, events.pod)


@pytest.mark.parametrize("name", ["device", "device-cel", "device-match"])
@sizes
def test_allocate_the_first(benchmark: BenchmarkFixture, name: str, nodes: int) -> None:
    """The first Pod of its kind: every node's devices are looked at, nothing is remembered. Grows with the cluster."""
    benchmark.group = f"allocate, nothing remembered: {name}"

    def fresh() -> tuple[tuple[Bench, Pod], dict[str, Any]]:
        bench = Bench(WORKLOADS[name], nodes)
        return (bench, bench.pod(0)), {}

    benchmark.pedantic(Bench.place, setup=fresh, rounds=3)


def test_selector(benchmark: BenchmarkFixture) -> None:
    """The CEL selector of ``device-cel`` on one device, nothing remembered."""
    bench = Bench(WORKLOADS["device-cel"], 1)
    template = WORKLOADS["device-cel"].templates[0]
    text = template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["selectors"][0]["cel"]["expression"]
    selector = compile_selector(text)
    device = bench.state.devices.slices.view(bench.state.nodes.node(0)).devices[0].cel
    benchmark.group = f"one CEL selector on one device of {CLASS}"
    benchmark.pedantic(selector.evaluate, args=(device,), rounds=ROUNDS, warmup_rounds=10)
