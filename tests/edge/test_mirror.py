"""The state for questions: equal to one built anew after any changes, in small steps, whatever is in flight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.api.kinds import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, Kind, convert
from scheduler.dra.features import Features
from scheduler.edge.mirror import Mirror, promises_of
from scheduler.state.cluster import ClusterState

KINDS = {kind.name: kind for kind in (RESOURCE_SLICE, DEVICE_CLASS, NODE, RESOURCE_CLAIM, POD)}
DRIVER = "gpu.example.com"


def node(name: str, version: int) -> Any:
    item = {"metadata": {"name": name, "uid": f"n-{name}", "resourceVersion": str(version)}}
    return convert(NODE, {**item, "status": {"allocatable": {"cpu": str(2 + version % 3), "pods": "10"}}})


def slice_of(name: str, version: int) -> Any:
    devices = [{"name": f"d{number}"} for number in range(1 + version % 3)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    meta = {"name": f"s-{name}", "uid": f"s-{name}", "resourceVersion": str(version)}
    return convert(
        RESOURCE_SLICE,
        {"metadata": meta, "spec": {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": devices}},
    )


def claim(name: str, version: int, device: str = "", on: str = "", users: tuple[str, ...] = ()) -> Any:
    status: dict[str, Any] = {}
    if device:
        result = {"request": "r", "driver": DRIVER, "pool": on, "device": device}
        status["allocation"] = {"devices": {"results": [result]}}
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": user} for user in users]
    request = {"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}
    meta = {"name": name, "namespace": "ns", "uid": f"c-{name}", "resourceVersion": str(version)}
    return convert(RESOURCE_CLAIM, {"metadata": meta, "spec": {"devices": {"requests": [request]}}, "status": status})


def pod(name: str, version: int, on: str = "", uid: str = "") -> Any:
    meta = {"name": name, "namespace": "ns", "uid": uid or name, "resourceVersion": str(version)}
    spec: dict[str, Any] = {"schedulerName": "dra-scheduler", "containers": [{"name": "c"}]}
    if on:
        spec["nodeName"] = on
    return convert(POD, {"metadata": meta, "spec": spec})


Copies = dict[str, tuple[Kind, dict[str, Any]]]


def empty() -> Copies:
    return {name: (kind, {}) for name, kind in KINDS.items()}


def refresh(mirror: Mirror, copies: Copies, live: ClusterState | None = None) -> int:
    return sum(1 for _ in mirror.refresh_steps(copies, lambda: promises_of(live or ClusterState(Features()))))


def facts(state: ClusterState) -> Any:
    nodes = state.nodes
    rows = {nodes.name_of(row): nodes.node(row).metadata.resourceVersion for row in nodes.order().tolist()}
    placed = {uid: (placement.node, placement.assumed) for uid, placement in state.placements.items()}
    claims = {key: found.metadata.resourceVersion for key, found in state.devices.claims.items()}
    seen = {
        name: [str(device.key) for device in state.devices.slices.view(nodes.node(nodes.row_of(name) or 0)).devices]
        for name in rows
    }
    return rows, placed, claims, seen, state.devices.ledger.state(), sorted(state.pods)


Edit = tuple[str, str, int]
NAMES = ("a", "b", "c")


@st.composite
def rounds(draw: Callable[..., Any]) -> list[list[Edit]]:
    edit = st.tuples(st.sampled_from(["node", "slice", "claim", "pod"]), st.sampled_from(NAMES), st.integers(0, 5))
    found: list[list[Edit]] = draw(st.lists(st.lists(edit, max_size=6), min_size=1, max_size=6))
    return found


def edit_copies(copies: Copies, edits: list[Edit], version: int) -> None:
    for kind, name, how in edits:
        if kind == "node":
            made, table, key = node(name, version), copies["Node"][1], name
        elif kind == "slice":
            made, table, key = slice_of(name, version), copies["ResourceSlice"][1], f"s-{name}"
        elif kind == "claim":
            device = f"d{how}" if how < 3 else ""
            made, table, key = claim(name, version, device, "a", ("a",)), copies["ResourceClaim"][1], f"ns/{name}"
        else:
            made = pod(name, version, NAMES[how % 3] if how < 3 else "", uid=f"{name}{how % 2}")
            table, key = copies["Pod"][1], f"ns/{name}"
        if how == 5:
            table.pop(key, None)
        else:
            table[key] = made


@settings(max_examples=150, deadline=None)
@given(rounds())
def test_a_refreshed_mirror_equals_a_new_one(history: list[list[Edit]]) -> None:
    """However the copies changed in between, nothing old is left and nothing new is missing; caches stay true."""
    copies, mirror = empty(), Mirror(Features())
    for version, edits in enumerate(history, 1):
        edit_copies(copies, edits, version)
        refresh(mirror, copies)
        mirror.state.verify()
        fresh = Mirror(Features())
        refresh(fresh, copies)
        assert facts(mirror.state) == facts(fresh.state)
        assert mirror.problems == fresh.problems


def test_nothing_changed_costs_no_change() -> None:
    """The version stays when every object is the one it was."""
    copies, mirror = empty(), Mirror(Features())
    edit_copies(copies, [("node", "a", 0), ("slice", "a", 0), ("claim", "a", 1), ("pod", "a", 4)], 1)
    refresh(mirror, copies)
    before = mirror.version
    refresh(mirror, copies)
    assert mirror.version == before


def test_a_large_refresh_comes_in_small_steps() -> None:
    """A thousand new objects are taken in over many steps, so that others get their turn."""
    copies, mirror = empty(), Mirror(Features())
    copies["Node"][1].update({f"n{number}": node(f"n{number}", 1) for number in range(1000)})
    assert refresh(mirror, copies) >= 10
    assert len(mirror.state.nodes) == 1000


def test_what_is_in_flight_counts_and_is_taken_back() -> None:
    """What is decided and not bound yet takes its node and devices, and gives both back when it is undone."""
    copies, mirror, live = empty(), Mirror(Features()), ClusterState(Features())
    edit_copies(copies, [("node", "a", 0), ("slice", "a", 2), ("claim", "a", 4), ("pod", "a", 4)], 1)
    waiting = copies["Pod"][1]["ns/a"]
    allocated = claim("a", 2, "d0", "a").status.allocation
    live.assume(waiting, "a")
    live.devices.ledger.set_in_flight("c-a", "ns/a", allocated)
    refresh(mirror, copies, live)
    assert mirror.state.placements[waiting.uid].assumed
    assert [key.device for key in mirror.state.devices.ledger.state()] == ["d0"]
    refresh(mirror, copies, live)
    mirror.state.verify()
    live.forget(waiting)
    live.devices.ledger.drop_in_flight("c-a")
    refresh(mirror, copies, live)
    assert (dict(mirror.state.placements), dict(mirror.state.devices.ledger.state())) == ({}, {})


def test_an_object_that_breaks_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named as a problem until a good version replaces it."""
    copies, mirror = empty(), Mirror(Features())
    edit_copies(copies, [("node", "a", 0), ("node", "b", 0)], 1)
    apply = mirror.state.apply

    def breaking(change: Any) -> Any:
        if change.new is not None and change.new.metadata.name == "a" and change.new.metadata.resourceVersion == "1":
            raise ValueError("too odd")
        return apply(change)

    monkeypatch.setattr(mirror.state, "apply", breaking)
    refresh(mirror, copies)
    assert list(mirror.problems.values()) == ["Node a: ValueError: too odd"]
    assert len(mirror.state.nodes) == 1
    edit_copies(copies, [("node", "a", 0)], 2)
    refresh(mirror, copies)
    assert (mirror.problems, len(mirror.state.nodes)) == ({}, 2)
