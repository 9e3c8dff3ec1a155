"""Small clusters to be asked what if: plain objects in, the difference out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from scheduler.app.snapshot import objects_of
from scheduler.app.whatif import Question, answer
from scheduler.config import SchedulerConfig, load_config
from scheduler.dra.features import Features
from scheduler.whatif.difference import Difference, PodChange
from scheduler.whatif.edits import decode_edits

Object = dict[str, Any]
NOW = 1_800_000_000.0


def ask(
    items: Iterable[Object],
    *edits: Object,
    until_stable: bool = False,
    gates: dict[str, bool] | None = None,
    config: str = "",
    files: dict[str, list[Any]] | None = None,
    progress: Callable[[str, int, int], None] = lambda what, attempts, waiting: None,
) -> Difference:
    """The difference that the edits make. ``files``: path → documents; a configuration's text is the only one."""
    features = Features.from_gates(gates or {})
    known = files or {}

    def load(path: str) -> SchedulerConfig:
        if path not in known:
            raise FileNotFoundError(2, "No such file or directory", path)
        return load_config(known[path][0])

    def read(path: str) -> Iterable[Any]:
        if path not in known:
            raise FileNotFoundError(2, "No such file or directory", path)
        return known[path]

    objects = objects_of(items, features, live=False)
    question = Question(
        objects, load_config(config), features, decode_edits(list(edits)), NOW, until_stable, load, read
    )
    return answer(question, progress)


def by_pod(found: Difference) -> dict[str, PodChange]:
    """Name in namespace default → its change."""
    return {change.pod.removeprefix("default/"): change for change in found.changes}


def places(found: Difference) -> dict[str, str]:
    """Name of each changed Pod → its node afterwards, "" while it waits, "gone"."""
    return {name: "gone" if change.after is None else change.after.node for name, change in by_pod(found).items()}


def add(*items: Object, **more: Any) -> Object:
    """The edit that creates these."""
    return {"add": {"objects": list(items), **more}}


def placed(pod: Object, node: str, owner: str = "", *devices: str) -> Object:
    """``pod`` on a node, of a controller ``Kind/name``."""
    made = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": "Running"}}
    if owner:
        kind, _, name = owner.partition("/")
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
        made["metadata"] = {**made["metadata"], "ownerReferences": [reference]}
    return made


def held(claim: Object, node: str, pod: str, *devices: str) -> Object:
    """``claim`` with devices of a node's pool, reserved for a Pod."""
    results = [{"request": "gpu", "driver": "gpu.example.com", "pool": node, "device": device} for device in devices]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    consumer = {"resource": "pods", "name": pod, "uid": f"pod/default/{pod}"}
    return {
        **claim,
        "metadata": {**claim["metadata"], "finalizers": ["resource.kubernetes.io/delete-protection"]},
        "status": {
            "allocation": {
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            },
            "reservedFor": [consumer],
        },
    }
