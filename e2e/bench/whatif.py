"""What-if on 1,000 nodes: CPU seconds of a whole call on a JSON dump, imports left out.

python -m e2e.bench.whatif [--nodes 1000] [--pods 1000]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from e2e import objects
from scheduler.cli.main import main as command

Object = dict[str, Any]
GPU = "gpu.example.com"
ZONE = "topology.kubernetes.io/zone"
DEVICES = 4


def _node(number: int) -> Object:
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    made = objects.node(f"node-{number}", zone=f"zone-{number % 3}")
    return {"apiVersion": "v1", "kind": "Node", **made, "status": {"allocatable": amounts, "capacity": amounts}}


def _slice(number: int) -> Object:
    name = f"node-{number}"
    spec = {
        "driver": GPU,
        "nodeName": name,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [objects.device(f"gpu-{index}", {"index": index}) for index in range(DEVICES)],
    }
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def _pod(name: str, cpu: str = "500m", **more: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", **objects.pod(name, requests={"cpu": cpu}, **more)}


def _full(nodes: int) -> list[Object]:
    """A Pod of priority 0 on each node, which leaves no room."""
    return [_pod(f"low-{number}", "3500m", nodeName=f"node-{number}", priority=0) for number in range(nodes)]


def _spread() -> Object:
    selector = {"matchLabels": {"app": "web"}}
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return _pod("p", labels={"app": "web"}, topologySpreadConstraints=[constraint])


def measure(base: list[Object], added: Object, pods: int, *flags: str) -> tuple[float, Object]:
    """(CPU seconds, the answer) of one call."""
    with tempfile.TemporaryDirectory() as folder:
        dump, manifest = Path(folder) / "dump.json", Path(folder) / "pod.json"
        dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": base}))
        manifest.write_text(json.dumps(added))
        out = io.StringIO()
        began = time.process_time()
        with contextlib.redirect_stdout(out):
            command(["whatif", "-f", str(dump), "--add", f"{manifest},count={pods}", "-o", "json", *flags])
        took = time.process_time() - began
    answer: Object = json.loads(out.getvalue())
    return took, answer


def main() -> None:
    """Print a line per workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=1000)
    arguments = parser.parse_args()
    nodes = [_node(number) for number in range(arguments.nodes)]
    devices = [
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
         **objects.device_class(GPU, f'device.driver == "{GPU}"')},
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
         **objects.claim_template("one", objects.exactly(GPU))},
        *map(_slice, range(arguments.nodes)),
    ]  # fmt: skip
    workloads: dict[str, tuple[list[Object], Object]] = {
        "plain": (nodes, _pod("p")),
        "device": ([*nodes, *devices], _pod("p", templates={"gpu": "one"})),
        "hard zone spread": (nodes, _spread()),
        "nobody fits": (nodes, _pod("p", "5")),
        "each preempts one": ([*nodes, *_full(arguments.nodes)], _pod("p", "3500m", priority=10)),
    }
    measure(nodes[:1], _pod("p"), 1)  # imports
    for name, (base, added) in workloads.items():
        took, answer = measure(base, added, arguments.pods, "--until-stable")
        after = answer["after"]
        print(f"{name:20} {took:6.2f} s CPU, {answer['attempts']} attempts, "
              f"{after['placed']} placed, {after['waiting']} waiting")  # fmt: skip


if __name__ == "__main__":
    main()
