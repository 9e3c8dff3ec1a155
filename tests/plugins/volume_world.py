"""A case with volumes on a real ClusterState, and our answer to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from plugins.volumes import NodeVolumeLimits, VolumeBinding, VolumeRestrictions, VolumeZone
from scheduler.api.changes import Change
from scheduler.api.kinds import NODE, POD, Kind, convert
from scheduler.api.storage import STORAGE_KINDS
from scheduler.config.arguments import decode_arguments
from scheduler.config.problems import Problems
from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import Handle
from scheduler.framework.status import Code, Status
from scheduler.state.cluster import ClusterState
from tests.plugins.topology_world import as_json, cycle_of

CLASSES: dict[str, Any] = {c.name: c for c in (VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone)}
KINDS: dict[str, Kind] = {kind.name: kind for kind in (NODE, POD, *STORAGE_KINDS)}
Json = dict[str, Any]

__all__ = ["CLASSES", "KINDS", "cycle_of", "differences", "plugin_of", "rejections", "state_of"]


def state_of(objects: Iterable[Json]) -> ClusterState:
    """A state that has seen ``objects`` appear."""
    state = ClusterState()
    for item in objects:
        kind = KINDS[item["kind"]]
        state.apply(Change(kind, None, convert(kind, item)))
    return state


def plugin_of(name: str, state: ClusterState, args: object = None) -> Any:
    """One of the four plugins, with ``args`` decoded as the configuration would."""
    arguments = decode_arguments(name, args, "args", Problems())
    return CLASSES[name](Handle(state, None, None, arguments))


def rejections(plugin: Any, cycle: Cycle) -> dict[str, Json]:
    """Rejections by node, after pre_filter has not skipped."""
    nodes = cycle.state.nodes
    rows = nodes.order()
    verdicts = plugin.filter(cycle, nodes, rows).tolist()
    found = {}
    for row, verdict in zip(rows.tolist(), verdicts, strict=True):
        if verdict:
            status = plugin.verdicts.status(verdict)
            if status.code is Code.ERROR:
                text = f'running "{plugin.name}" filter plugin: {status.message}'
                status = Status(Code.ERROR, (text,))
            found[nodes.name_of(row)] = as_json(status, plugin.name)
    return found


def scores(plugin: Any, cycle: Cycle, names: Iterable[str]) -> dict[str, int]:
    """Scores by node over the nodes ``names``."""
    nodes = cycle.state.nodes
    order = nodes.order()
    wanted = [row for row in map(nodes.row_of, names) if row is not None]
    rows = order[np.isin(order, wanted)]
    assert plugin.pre_score(cycle, nodes, rows).code is Code.SUCCESS
    raw = plugin.score(cycle, nodes, rows)
    return {nodes.name_of(row): score for row, score in zip(rows.tolist(), raw.tolist(), strict=True)}


def differences(case: Json) -> list[str]:
    """Where our answer differs from the oracle's; empty when nowhere."""
    answer, found = case["answer"], []
    state = state_of(case["objects"])
    profiles = case.get("config", {}).get("profiles", [{}])
    args = {entry["name"]: entry["args"] for entry in profiles[0].get("pluginConfig", [])}
    pod = convert(POD, case["pod"])
    refused = answer["prefilter"]["code"] != "Success"
    for name in CLASSES:
        plugin, cycle = plugin_of(name, state, args.get(name)), cycle_of(state, pod)
        status = plugin.pre_filter(cycle).status
        if refused:
            expected = {key: answer["prefilter"][key] for key in ("code", "plugin", "reasons")}
            ours = as_json(status, name)
            if status.code is Code.ERROR:
                ours["reasons"] = [f'running PreFilter plugin "{name}": {status.message}']
            if expected["plugin"] == name and ours != expected:
                found.append(f"{name} PreFilter: {ours}, expected {expected}")
            if expected["plugin"] == name:
                break
            if status.code not in (Code.SKIP, Code.SUCCESS):
                found.append(f"{name} PreFilter: {status}, expected a rejection by {expected['plugin']}")
            continue
        skipped = name in answer["prefilter"].get("skipped", ())
        if (status.code is Code.SKIP) != skipped or status.code not in (Code.SKIP, Code.SUCCESS):
            found.append(f"{name} PreFilter: {status}, expected skipped={skipped}")
            continue
        ours = {} if skipped else rejections(plugin, cycle)
        wanted = {node: by[name] for node, by in answer.get("failures", {}).items() if name in by}
        if ours != wanted:
            found.append(f"{name} Filter: {ours}, expected {wanted}")
        if hasattr(plugin, "score") and answer.get("scores"):
            ours = scores(plugin, cycle, answer["scores"])
            wanted = {node: by.get(name) for node, by in answer["scores"].items()}
            if ours != wanted:
                found.append(f"{name} Score: {ours}, expected {wanted}")
    state.verify()
    return found
