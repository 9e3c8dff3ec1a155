"""A case of spread, inter-Pod affinity or declared features on a real ClusterState, and our answer to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from plugins.inter_pod_affinity import InterPodAffinity
from plugins.node_declared_features import NodeDeclaredFeatures
from plugins.pod_topology_spread import PodTopologySpread
from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import NAMESPACE, NODE, POD, Kind, convert
from scheduler.api.workloads import WORKLOADS
from scheduler.config.arguments import decode_arguments
from scheduler.config.problems import Problems
from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import Handle
from scheduler.framework.status import Code, Status
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info

CLASSES: dict[str, Any] = {c.name: c for c in (PodTopologySpread, InterPodAffinity, NodeDeclaredFeatures)}
KINDS: dict[str, Kind] = {kind.name: kind for kind in (NODE, POD, NAMESPACE, *WORKLOADS)}
Json = dict[str, Any]


def state_of(objects: Iterable[Json]) -> ClusterState:
    """A state that has seen ``objects`` appear."""
    state = ClusterState()
    for item in objects:
        kind = KINDS[item["kind"]]
        state.apply(Change(kind, None, convert(kind, item)))
    return state


def plugin_of(name: str, state: ClusterState, args: object = None) -> Any:
    """One of the three plugins, with ``args`` decoded as the configuration would."""
    arguments = decode_arguments(name, args, "args", Problems())
    return CLASSES[name](Handle(state, None, None, arguments))


def cycle_of(state: ClusterState, pod: Pod) -> Cycle:
    """An attempt for ``pod``."""
    return Cycle(pod, pod_info(pod), state)


def as_json(status: Status, plugin: str) -> Json:
    """A status as the oracle writes it."""
    answer: Json = {"code": status.code.label}
    if status.code is not Code.SUCCESS:
        answer |= {"plugin": plugin, "reasons": sorted(status.reasons)}
    return answer


def rejections(plugin: Any, cycle: Cycle) -> dict[str, Json]:
    """Rejections by node, after pre_filter has not skipped."""
    nodes = cycle.state.nodes
    rows = nodes.order()
    verdicts = plugin.filter(cycle, nodes, rows).tolist()
    return {
        nodes.name_of(row): as_json(plugin.verdicts.status(verdict), plugin.name)
        for row, verdict in zip(rows.tolist(), verdicts, strict=True)
        if verdict
    }


def scores(plugin: Any, cycle: Cycle, names: Iterable[str]) -> tuple[dict[str, int], dict[str, int]] | Status:
    """(raw, normalized) by node over the nodes ``names``, or PreScore's answer when that is no success."""
    nodes = cycle.state.nodes
    order = nodes.order()
    wanted = [row for row in map(nodes.row_of, names) if row is not None]
    rows = order[np.isin(order, wanted)]
    status: Status = plugin.pre_score(cycle, nodes, rows)
    if status.code is not Code.SUCCESS:
        return status
    raw = plugin.score(cycle, nodes, rows)
    normal = plugin.normalize(cycle, nodes, rows, raw)
    found = [nodes.name_of(row) for row in rows.tolist()]
    return dict(zip(found, raw.tolist(), strict=True)), dict(zip(found, normal.tolist(), strict=True))


def differences(case: Json) -> list[str]:
    """Where our answer differs from the oracle's; empty when nowhere."""
    answer, found = case["answer"], []
    state = state_of(case["objects"])
    state.verify()
    profiles = case.get("config", {}).get("profiles", [{}])
    args = {entry["name"]: entry["args"] for entry in profiles[0].get("pluginConfig", [])}
    pod = convert(POD, case["pod"])
    for name in CLASSES:
        plugin, cycle = plugin_of(name, state, args.get(name)), cycle_of(state, pod)
        status = plugin.pre_filter(cycle).status
        if answer["prefilter"]["code"] != "Success":
            expected = {key: answer["prefilter"][key] for key in ("code", "plugin", "reasons")}
            ours = as_json(status, name)
            if status.code is Code.ERROR:
                ours["reasons"] = [f'running PreFilter plugin "{name}": {status.message}']
            if expected["plugin"] == name and ours != expected:
                found.append(f"{name} PreFilter: {ours}, expected {expected}")
            continue
        skipped = name in answer["prefilter"].get("skipped", ())
        if (status.code is Code.SKIP) != skipped or status.code not in (Code.SKIP, Code.SUCCESS):
            found.append(f"{name} PreFilter: {status}, expected skipped={skipped}")
            continue
        ours = {} if skipped else rejections(plugin, cycle)
        wanted = {node: by[name] for node, by in answer.get("failures", {}).items() if name in by}
        if ours != wanted:
            found.append(f"{name} Filter: {ours}, expected {wanted}")
        if hasattr(plugin, "score") and f'"{name}"' in answer.get("score_error", ""):
            failed = scores(plugin, cycle, [node for node, by in answer["nodes"].items() if by["code"] == "Success"])
            text = failed.message if isinstance(failed, Status) else "no error"
            if answer["score_error"] != f'running PreScore plugin "{name}": {text}':
                found.append(f"{name} PreScore: {text}, expected {answer['score_error']}")
        elif hasattr(plugin, "score") and answer.get("scores"):
            result = scores(plugin, cycle, answer["scores"])
            pair: Any = ({}, {}) if isinstance(result, Status) and result.code is Code.SKIP else result
            wanted_pair = tuple(
                {node: by[name] for node, by in answer[key].items() if name in by} for key in ("raw_scores", "scores")
            )
            if pair != wanted_pair:
                found.append(f"{name} Score: {pair}, expected {wanted_pair}")
    return found
