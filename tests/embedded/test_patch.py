"""Patches as pure functions."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.embedded.patch import json_patch, merge_patch, strategic_merge_patch

LEAVES = st.one_of(st.integers(), st.booleans(), st.sampled_from(["", "x", "yy"]), st.lists(st.integers(), max_size=3))
OBJECTS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), LEAVES, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), st.one_of(LEAVES, inner), max_size=3),
    max_leaves=8,
)


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The JSON merge patch that turns old into new."""
    out: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            out[name] = difference(before, value)
        elif name not in old or before != value or type(before) is not type(value):
            out[name] = value
    return out


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_reaches_any_object(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Applying the difference of two objects to the first gives the second and leaves the first alone."""
    before = copy.deepcopy(old)
    assert merge_patch(old, difference(old, new)) == new
    assert old == before


ENTRIES = st.lists(st.sampled_from("pqrs"), unique=True, max_size=4)


@given(ENTRIES, ENTRIES, ENTRIES)
def test_strategic_reservations(present: list[str], added: list[str], removed: list[str]) -> None:
    """Adding and $patch: delete on reservedFor by uid give the union without the removed; nothing twice."""
    claim = {"status": {"reservedFor": [{"uid": uid, "name": uid} for uid in present]}}
    before = copy.deepcopy(claim)
    patch = [{"uid": uid, "name": uid} for uid in added if uid not in removed]
    patch += [{"$patch": "delete", "uid": uid} for uid in removed]
    result = strategic_merge_patch("ResourceClaim", claim, {"status": {"reservedFor": patch}})
    uids = [entry["uid"] for entry in result["status"]["reservedFor"]]
    assert sorted(uids) == sorted((set(present) | set(added)) - set(removed))
    assert claim == before


@given(ENTRIES, st.permutations("pqrs"))
def test_set_element_order_decides(present: list[str], order: list[str]) -> None:
    """With $setElementOrder over all elements the result has that order."""
    node = {"status": {"conditions": [{"type": name, "status": "True"} for name in present]}}
    patch = {
        "$setElementOrder/conditions": [{"type": name} for name in order],
        "conditions": [{"type": name, "status": "False"} for name in order],
    }
    result = strategic_merge_patch("Node", node, {"status": patch})
    assert [condition["type"] for condition in result["status"]["conditions"]] == list(order)


def test_directives_replace_and_retain() -> None:
    """$patch: replace replaces a map or a keyed list; $retainKeys drops the other keys."""
    pod = {"spec": {"containers": [{"name": "a"}, {"name": "b"}], "securityContext": {"x": 1, "y": 2}}}
    patch = {
        "spec": {
            "containers": [{"$patch": "replace"}, {"name": "c"}],
            "securityContext": {"$retainKeys": ["y"], "y": 3},
        }
    }
    result = strategic_merge_patch("Pod", pod, patch)
    assert result["spec"]["containers"] == [{"name": "c"}]
    assert result["spec"]["securityContext"] == {"y": 3}
    replaced = strategic_merge_patch("Pod", pod, {"spec": {"securityContext": {"$patch": "replace", "z": 1}}})
    assert replaced["spec"]["securityContext"] == {"z": 1}


def test_json_patch_works_on_lists() -> None:
    """Indices insert, replace and remove; "-" appends; the input is left alone."""
    document = {"items": [1, 2, 3]}
    operations = [
        {"op": "add", "path": "/items/-", "value": 4},
        {"op": "add", "path": "/items/0", "value": 0},
        {"op": "remove", "path": "/items/1"},
        {"op": "replace", "path": "/items/1", "value": 22},
    ]
    assert json_patch(document, operations) == {"items": [0, 22, 3, 4]}
    assert document == {"items": [1, 2, 3]}
