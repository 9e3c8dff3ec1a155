"""What is kept from one explanation to the next never shows, and shortcuts tell what the long way would."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.api.changes import Change
from scheduler.api.kinds import DEVICE_CLASS, NODE, RESOURCE_CLAIM, RESOURCE_SLICE, Kind, convert
from scheduler.api.resource import ResourceClaimStatus
from scheduler.app.snapshot import Snapshot
from scheduler.dra.allocator import Allocation
from scheduler.dra.rejections import Reason
from scheduler.explain.attempts import ended
from scheduler.explain.facts import PoolTrouble
from scheduler.explain.kept import DeviceReport, KeptReports
from scheduler.explain.pods import explain_steps
from tests.app.objects import gpu_class, node, pod
from tests.explain.clusters import DRIVER, Object, device, held, request, slice_of, snapshot, want
from tests.explain.test_consistency import clusters

EDITS = st.lists(
    st.tuples(st.sampled_from(["claim", "slice", "class", "node", "nothing"]), st.integers(0, 3), st.integers(0, 2)),
    min_size=1,
    max_size=6,
)


def told(snap: Snapshot, kept: KeptReports | None) -> Any:
    waiting = snap.pod("default", "p")
    profile, _ = snap.profile_for(waiting)
    return msgspec.to_builtins(ended(explain_steps(profile, waiting, snap.state, snap.now, kept)))


def edit(snap: Snapshot, kind: str, place: int, how: int, version: int) -> None:
    """Take devices from claims or give them some, publish other devices, ask for others, label nodes."""
    state = snap.state
    if kind == "claim":
        number = f"h-{place}-{how}"
        old = state.devices.claims.get(f"default/{number}")
        if old is not None and old.status.allocation is not None:
            freed = msgspec.structs.replace(old, status=ResourceClaimStatus())
            state.apply(Change(RESOURCE_CLAIM, old, freed))
        else:
            put(snap, RESOURCE_CLAIM, held(number, f"n{place}", f"d{how}"), version, old)
    elif kind == "slice":
        devices = [device(f"d{one}", model=("A100", "H100")[(one + version) % 2]) for one in range(how + 1)]
        name = f"n{place}-slice"
        old_slice = next((one.slice for one in state.devices.slices.infos() if one.slice.metadata.name == name), None)
        put(snap, RESOURCE_SLICE, slice_of(f"n{place}", devices, generation=version), version, old_slice)
    elif kind == "class":
        put(snap, DEVICE_CLASS, selecting(how), version, state.devices.classes.get("gpu"))
    elif kind == "node" and state.nodes.row_of(f"n{place}") is not None:
        old_node = state.nodes.node(state.nodes.row_of(f"n{place}") or 0)
        put(snap, NODE, node(f"n{place}", cpu=str(1 + how)), version, old_node)


def selecting(how: int) -> Object:
    item = gpu_class()
    item["spec"] = {"selectors": [{"cel": {"expression": ("true", f'device.driver == "{DRIVER}"', "false")[how]}}]}
    return item


def put(snap: Snapshot, kind: Kind, item: Object, version: int, old: Any) -> None:
    """The object as the watch would show it next."""
    meta = {**item["metadata"], "uid": old.metadata.uid if old is not None else f"uid-{version}"}
    new = convert(kind, {**item, "metadata": {**meta, "resourceVersion": str(1000 + version)}})
    snap.state.apply(Change(kind, old, new))


@settings(max_examples=150, deadline=None)
@given(clusters(), EDITS)
def test_kept_reports_never_show(items: list[Object], edits: list[tuple[str, int, int]]) -> None:
    """After any changes the explanation with reports at hand equals the one made from scratch."""
    snap, kept = snapshot(items), KeptReports()
    for version, (kind, place, how) in enumerate(edits, 1):
        assert told(snap, kept) == told(snap, None)
        edit(snap, kind, place, how, version)
    assert told(snap, kept) == told(snap, None)


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_one_walk_tells_what_all_combinations_tell(items: list[Object]) -> None:
    """A claim with one request and no constraint is explained without a search; a search finds the same reasons."""
    short = told(snapshot(items), None)
    with patch.object(Allocation, "_simple_told", lambda self, alternative, taking: False):
        assert told(snapshot(items), None) == short


def test_reports_are_kept_up_to_a_number() -> None:
    """Questions that were not asked for longest go first; of a question all nodes go together."""
    snap = snapshot(
        [gpu_class(), *(node(f"n{i}") for i in range(3)), *(slice_of(f"n{i}", [device("d0")]) for i in range(3))]
    )
    state, kept = snap.state, KeptReports(limit=6)
    views = [state.devices.slices.view(state.nodes.node(row)) for row in state.nodes.order().tolist()]
    usages = [state.devices.ledger.usage(view) for view in views]
    for question in ("a", "b", "a", "c"):
        for view, usage in zip(views, usages, strict=True):
            kept.put(question, view, usage, DeviceReport(notes=[question]))
    assert len(kept) == 6
    assert kept.get("b", views[0], usages[0]) is None
    assert [kept.get(one, views[2], usages[2]) is not None for one in ("a", "c")] == [True, True]
    assert kept.get("a", views[0], usages[1]) is None, "another use"
    assert kept.get("a", views[0], usages[0]) is not None
    for view, usage in zip(views, usages, strict=True):
        kept.put("d", view, usage, DeviceReport())
    assert [kept.get(one, views[0], usages[0]) is not None for one in "acd"] == [True, False, True], "asked for last"
    small = KeptReports(limit=2)
    for view, usage in zip(views, usages, strict=True):
        small.put("a", view, usage, DeviceReport())
    assert len(small) == 2, "one question about more nodes than are kept"
    assert small.get("a", views[0], usages[0]) is not None


def test_a_search_that_was_cut_short_is_not_kept() -> None:
    """How far it gets depends on how many nodes there are."""
    items = [gpu_class(), node("n0"), slice_of("n0", [device("d0")]), want(request(count=2)), pod("p", claim="want")]
    snap, kept = snapshot(items), KeptReports()
    trouble = PoolTrouble(Reason.SEARCH_BUDGET.value, "", {"steps": "1"})
    with patch("scheduler.explain.nodes.troubles", lambda rejections: [trouble]):
        told(snap, kept)
    assert len(kept) == 0
    told(snap, kept)
    assert len(kept) == 1
