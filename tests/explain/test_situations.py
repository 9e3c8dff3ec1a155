"""Every waiting situation names its culprit, in data and in a sentence."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.dra.rejections import Reason
from tests.explain.clusters import explained
from tests.explain.situations import ALL, Situation


@pytest.mark.parametrize("situation", ALL, ids=lambda one: one.name.replace(" ", "-"))
def test_the_culprit_is_named(situation: Situation) -> None:
    """The explanation blames the right plugin, reason and devices, and says so in words."""
    found, text = explained(situation.items, gates=situation.gates)
    assert found.phase == situation.phase
    assert situation.text in text, text
    data = msgspec.json.decode(msgspec.json.encode(found))
    verdicts = [verdict for group in data["nodes"] for verdict in group["verdicts"]]
    said = [reason for verdict in verdicts for reason in verdict["reasons"] if verdict["plugin"] == situation.plugin]
    if situation.said:
        assert any(situation.said in reason for reason in [*said, data["message"]]), data
    if verdicts:
        assert situation.plugin in {verdict["plugin"] for verdict in verdicts}
    elif situation.plugin:
        assert data["culprit"] == situation.plugin
    if situation.note:
        assert any(situation.note in note for group in data["nodes"] for note in group["notes"]), data
    if situation.reason:
        groups = [
            group
            for node in data["nodes"]
            for claim in node["claims"]
            for request in claim["requests"]
            for group in request["refused"]
            if group["reason"] == situation.reason and situation.detail.items() <= group["detail"].items()
        ]
        assert [group["count"] for group in groups][:1] == [situation.count], data


def test_there_are_enough_situations() -> None:
    """No name twice, every reason but those of pools (told as notes) and of bounds among them."""
    names = [one.name for one in ALL]
    assert len(set(names)) == len(names) >= 60
    reasons = {one.reason for one in ALL}
    of_pools_or_bounds = {Reason.POOL_INCOMPLETE, Reason.POOL_INVALID, Reason.LIMIT, Reason.SEARCH_BUDGET}
    assert reasons >= {reason.value for reason in Reason if reason not in of_pools_or_bounds}
    assert {one.note for one in ALL} >= {Reason.POOL_INCOMPLETE.value, Reason.POOL_INVALID.value}
