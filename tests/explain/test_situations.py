"""Every waiting situation names its culprit, in data and in a sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.dra.rejections import Reason
from tests.explain.clusters import explained
from tests.explain.situations import DEVICES, Situation
from tests.explain.situations_plugins import PLUGINS
from tests.explain.situations_wishes import WISHES

ALL = [*DEVICES, *PLUGINS, *WISHES]


@pytest.mark.parametrize("situation", ALL, ids=lambda one: one.name.replace(" ", "-"))
def test_the_culprit_is_named(situation: Situation) -> None:
    """The explanation blames the right plugin, reason and devices, and says so in words."""
    found, text = explained(situation.items, gates=situation.gates, config=situation.config)
    assert found.phase == situation.phase
    assert situation.text in text, text
    data = msgspec.json.decode(msgspec.json.encode(found))
    verdicts = [verdict for group in data["nodes"] for verdict in group["verdicts"]]
    mine = [verdict for verdict in verdicts if verdict["plugin"] == situation.plugin]
    if situation.said:
        said = [reason for verdict in mine for reason in verdict["reasons"]]
        assert any(situation.said in reason for reason in [*said, data["message"]]), data
    if verdicts:
        assert mine, data
    elif situation.plugin:
        assert data["culprit"] == situation.plugin
    causes = [cause for verdict in mine for cause in verdict["because"]] or data["because"]
    if situation.facts:
        assert situation.facts in [cause["facts"] for cause in causes], causes
    if situation.note:
        assert any(situation.note in note for group in data["nodes"] for note in group["notes"]), data
    if situation.trouble[0]:
        troubles = [trouble for group in data["nodes"] for trouble in group["troubles"]]
        assert situation.trouble in [(one["reason"], one["subject"]) for one in troubles], troubles
    if situation.reason:
        _check_group(situation, data)


def _check_group(situation: Situation, data: dict[str, Any]) -> None:
    groups = [
        group
        for node in data["nodes"]
        for claim in node["claims"]
        for request in claim["requests"]
        for group in request["refused"]
        if group["reason"] == situation.reason and situation.detail.items() <= group["detail"].items()
    ]
    assert [group["count"] for group in groups][:1] == [situation.count], data
    if situation.holders:
        assert groups[0]["holders"] == situation.holders


def test_every_wish_has_its_situation() -> None:
    """U10, limits per tenant, as Kubernetes has them: a quota counts what claims ask for."""
    wishes = {one.name.partition(":")[0] for one in WISHES}
    assert wishes == {f"U{number}" for number in range(1, 15)}


def test_there_are_enough_situations() -> None:
    """No name twice; every reason of the vocabulary, of devices or of pools; every filter plugin."""
    names = [one.name for one in ALL]
    assert len(set(names)) == len(names) >= 60
    assert {one.reason for one in ALL} | {one.trouble[0] for one in ALL} >= {reason.value for reason in Reason}
    plugins = {one.plugin for one in ALL}
    assert plugins >= {
        "SchedulingGates", "GangScheduling", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts",
        "NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "Partition",
        "PodTopologySpread", "InterPodAffinity", "NodeDeclaredFeatures", "DynamicResources",
    }  # fmt: skip
