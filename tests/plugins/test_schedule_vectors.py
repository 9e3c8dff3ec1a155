"""The ordinary plugins against answers of kube-scheduler 1.37.2, kept in tests/vectors/schedule_basic.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugins.registry import DEFAULT_PLUGINS
from scheduler.api.changes import Change
from scheduler.api.kinds import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, convert
from scheduler.framework.status import Code, Status
from tests.plugins.plugin_world import World

VECTORS = Path(__file__).parents[1] / "vectors" / "schedule_basic.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text().splitlines()] if VECTORS.exists() else []
FILTERS = (
    "NodeName",
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
)
SCORES = (
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
)


def world_of(case: dict[str, Any]) -> World:
    """The state of a case."""
    kinds = {kind.name: kind for kind in (NODE, POD, DEVICE_CLASS, RESOURCE_SLICE, RESOURCE_CLAIM)}
    by_kind: dict[str, list[Any]] = {name: [] for name in kinds}
    for item in case["objects"]:
        by_kind[item["kind"]].append(convert(kinds[item["kind"]], item))
    world = World(by_kind["Node"], by_kind["Pod"])
    for device_class in by_kind["DeviceClass"]:
        world.devices.apply_class(None, device_class)
    for resource_slice in by_kind["ResourceSlice"]:
        world.devices.apply_slice(None, resource_slice)
    for claim in by_kind["ResourceClaim"]:
        world.devices.apply_claim(Change(RESOURCE_CLAIM, None, claim))
    return world


def plugins_of(case: dict[str, Any], world: World) -> dict[str, Any]:
    """Our plugins with the arguments of the case's only profile."""
    profiles = case.get("config", {}).get("profiles", [{}])
    args = {entry["name"]: entry["args"] for entry in profiles[0].get("pluginConfig", [])}
    return {name: world.plugin(name, args.get(name)) for name in {*FILTERS, *SCORES, "SchedulingGates"}}


def as_json(status: Status, plugin: str) -> dict[str, Any]:
    """A status as the oracle writes it."""
    answer: dict[str, Any] = {"code": status.code.label}
    if status.code is not Code.SUCCESS:
        answer |= {"plugin": plugin, "reasons": sorted(status.reasons)}
    return answer


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_same_answers_as_kube_scheduler(case: dict[str, Any]) -> None:
    """PreEnqueue, skipped filters, every rejection with its texts, raw and normalized scores are upstream's."""
    answer = case["answer"]
    assert "input_error" not in answer
    assert "score_error" not in answer
    world = world_of(case)
    plugins = plugins_of(case, world)
    pod = convert(POD, case["pod"])
    assert as_json(plugins["SchedulingGates"].pre_enqueue(pod), "SchedulingGates") == answer["preenqueue"]

    pre_filters = {name: plugins[name].pre_filter(world.cycle(pod)) for name in FILTERS}
    rejected = [name for name in FILTERS if pre_filters[name].status.code.rejected]
    if answer["prefilter"]["code"] != "Success":
        assert [as_json(pre_filters[name].status, name) for name in rejected] == [
            {key: answer["prefilter"][key] for key in ("code", "plugin", "reasons")}
        ]
        return
    assert rejected == []
    skipped = {name for name in FILTERS if pre_filters[name].status.code is Code.SKIP}
    assert skipped == set(answer["prefilter"].get("skipped", ())) & set(FILTERS)
    sets = [result.node_names for result in pre_filters.values() if result.node_names is not None]
    assert [sorted(names) for names in sets] == [n for n in [answer["prefilter"]["nodes"]] if n is not None]

    looked_at = answer.get("failures", {}).keys() | answer.get("scores", {}).keys()
    for name in FILTERS:
        found = {node: as_json(s, name) for node, s in world.filter(plugins[name], pod).items() if node in looked_at}
        expected = {node: by[name] for node, by in answer.get("failures", {}).items() if name in by}
        assert found == expected, name

    feasible = answer.get("scores", {})
    for name in SCORES:
        result = world.score(plugins[name], pod, feasible)
        raw, scores = ({}, {}) if isinstance(result, Status) else result
        if isinstance(result, Status):
            assert result.code is Code.SKIP
        assert raw == {node: by[name] for node, by in answer.get("raw_scores", {}).items() if name in by}, name
        assert scores == {node: by[name] for node, by in feasible.items() if name in by}, name


def test_the_vectors_cover_every_plugin() -> None:
    """Each filter rejects somewhere and each score tells nodes apart somewhere, or the file proves nothing."""
    rejecting = {name for case in CASES for by in case["answer"].get("failures", {}).values() for name in by}
    assert {*FILTERS} - {"NodeName"} <= rejecting
    differing = {
        name
        for case in CASES
        for name in SCORES
        if len({by.get(name) for by in case["answer"].get("raw_scores", {}).values()}) > 1
    }
    assert differing == {*SCORES}


def test_default_order() -> None:
    """The registry lists plugins in upstream's order, which decides which of several rejections is reported."""
    order = list(DEFAULT_PLUGINS)
    assert [name for name in order if name in FILTERS] == list(FILTERS)
    assert order[:2] == ["SchedulingGates", "PrioritySort"]
    assert order[-2:] == ["DefaultBinder", "NodeDeclaredFeatures"]
