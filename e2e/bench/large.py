"""Decisions on full clusters: ``python -m e2e.bench.large``.

Preemption with 1,000 candidate nodes of 4 victims each (all of them tried), hard spread, preferred and required
affinity on 5,000 nodes with 20,000 Pods. Milliseconds, the minimum of 7 runs, beside a calibration loop.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from e2e.bench.devices import RUNS, calibration_ms
from e2e.bench.micro import Bench
from e2e.bench.workloads import WORKLOADS, Object, Workload, plain_pod
from scheduler.api.kinds import POD
from scheduler.config import load_config
from scheduler.cycle.attempt import Attempt, Rotation
from scheduler.cycle.decision import Need, Placed, Rejected, Running
from scheduler.framework.instructions import PreemptPods

ALL_CANDIDATES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: dra-scheduler
    pluginConfig:
      - name: DefaultPreemption
        args: {minCandidateNodesPercentage: 100, minCandidateNodesAbsolute: 1000}
"""


def _bound(bench: Bench, body: Object, node: int) -> None:
    body["spec"]["nodeName"] = f"node-{node}"
    bench.put(POD, body)


def preemption_ms(nodes: int = 1000, victims: int = 4) -> float:
    """A Pod of high priority on nodes filled by ``victims`` low ones each; nothing is evicted."""
    bench = Bench(WORKLOADS["plain"], nodes, load_config(ALL_CANDIDATES))
    for index in range(nodes * victims):
        body = plain_pod(index)
        body["spec"]["containers"][0]["resources"]["requests"] = {"cpu": f"{32 // victims}", "memory": "1Gi"}
        body["spec"]["priority"] = 0
        _bound(bench, body, index % nodes)
    body = plain_pod(10**6)
    body["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "16"}
    body["spec"] |= {"priority": 100, "schedulerName": bench.profile.name}
    pod = bench.put(POD, body)
    best_s = float("inf")
    for _ in range(RUNS):
        attempt = Attempt(bench.profile, pod, bench.state, now=0.0, rotation=Rotation())
        started = time.perf_counter()
        asked = None
        while not isinstance(outcome := attempt.step(1 << 62), Placed | Rejected):
            if isinstance(outcome, Need) and isinstance(outcome.instruction, PreemptPods):
                asked = outcome.instruction
                attempt.answer("only measured")
            elif not isinstance(outcome, Running):
                raise SystemExit(f"preemption: {outcome}")
        best_s = min(best_s, time.perf_counter() - started)
        if asked is None:
            raise SystemExit(f"no preemption was asked for: {outcome}")
    return best_s * 1000


def decision_ms(workload: Workload, nodes: int = 5000, pods: int = 20_000) -> float:
    """One warm decision of ``workload`` in a cluster full of its Pods; a Pod lands between two runs."""
    bench = Bench(workload, nodes)
    for index in range(pods):
        _bound(bench, workload.pod(index), index % nodes)
    times_s = [bench.place(bench.pod(pods + index)) for index in range(RUNS + 1)]
    return min(times_s[1:]) * 1000


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(arguments)
    print(f"calibration: 1,000,000 additions in {calibration_ms():.1f} ms; ms, minimum of {RUNS} runs")
    print(f"preemption, 1,000 candidate nodes x 4 victims   {preemption_ms():8.2f}")
    for name in ("plain", "spread", "preferred-affinity"):
        print(f"{name + ', 5,000 nodes, 20,000 Pods':47} {decision_ms(WORKLOADS[name]):8.2f}", flush=True)
    sparse = WORKLOADS["anti-affinity"]
    print(f"{'anti-affinity, 5,000 nodes, 4,000 Pods':47} {decision_ms(sparse, pods=4000):8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
