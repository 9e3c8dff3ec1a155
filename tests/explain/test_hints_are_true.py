"""Every hint in every waiting situation: carried out by hand on the objects, the Pod fits, on the node that was told.

Nothing of the hints' own simulation is used: the objects are edited as a user would, and a new cluster is made of them.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.app.objects import gpu_class, node, pod
from tests.explain.clusters import DRIVER, Object, device, explained, held, request, slice_of, want
from tests.explain.made_changes import KINDS_OF_CHANGES, changed
from tests.explain.situations import Situation, base
from tests.explain.test_consistency import clusters
from tests.explain.test_situations import ALL

MODEL = f'device.attributes["{DRIVER}"].model'
MORE = [
    Situation(
        "a misspelt claim",
        base([device("a")], want(request(), name="wanted"), waiting=pod("p", claim="wantd")),
        "could not find ResourceClaim",
        hints=("use claim",),
    ),
    Situation(
        "a class that is almost there",
        base([device("a")], want(request("r", 1, deviceClassName="gpus"))),
        "device class gpus does not exist",
        hints=("use class",),
    ),
    Situation(
        "a selector that fails on one device",
        base([{"name": "a"}, device("b")], want(request("r", 1, f'{MODEL} == "A100"'))),
        "selector error",
        hints=("guard selector", "drop selector"),
    ),
    Situation(
        "a node like the one that is full",
        [
            node("n1"),
            gpu_class(),
            slice_of("n1", [device("a")]),
            held("h", "n1", "a"),
            want(request()),
            pod("p", claim="want"),
        ],
        "1 in use",
        hints=("claim ends", "add node"),
    ),
]
SITUATIONS = [*ALL, *MORE]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.name.replace(" ", "-"))
def test_every_hint_is_true(situation: Situation) -> None:
    """Each is made in a copy of the objects; the Pod then fits, and goes where the hint says."""
    found, text = explained(situation.items, hints=True, gates=situation.gates, config=situation.config)
    kinds = {hint.change for hint in found.hints}
    assert kinds >= set(situation.hints), [hint.text for hint in found.hints]
    for hint in found.hints:
        assert hint.text in text
        after, shown = explained(changed(situation.items, hint), gates=situation.gates, config=situation.config)
        assert (after.phase, after.node) == ("fits", hint.node), f"{hint.text}\n{shown}"


def test_every_kind_of_hint_was_met() -> None:
    """Each kind of change that can be told is wanted by a situation above."""
    assert {change for one in SITUATIONS for change in one.hints} == KINDS_OF_CHANGES


@settings(max_examples=40, deadline=None)
@given(clusters())
def test_every_hint_about_any_cluster_is_true(items: list[Object]) -> None:
    """Random nodes, devices, holders, taints and requests: whatever is told to help does help, on that node."""
    found, _ = explained(items, hints=True)
    for hint in found.hints:
        after, shown = explained(changed(items, hint))
        assert (after.phase, after.node) == ("fits", hint.node), f"{hint.text}\n{shown}"
