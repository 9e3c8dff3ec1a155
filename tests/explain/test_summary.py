"""The short device summary: words, bounds, and when it is made anew."""

from __future__ import annotations

from typing import Any

from scheduler.api.changes import Change
from scheduler.api.kinds import RESOURCE_CLAIM, convert
from scheduler.explain.fit import NOTE_BYTES_MAX, event_note
from scheduler.explain.summary import NODES_MAX, Summaries, device_summary
from scheduler.whatif.objects import completed
from tests.app.objects import gpu_class, node, pod
from tests.explain.clusters import DRIVER, NOW, Object, device, held, request, slice_of, snapshot, want

MODEL = f'device.attributes["{DRIVER}"].model'


def summary(items: list[Object]) -> str:
    snap = snapshot(items)
    waiting = snap.pod("default", "p")
    return device_summary(snap.profile_for(waiting)[0], waiting, snap.state, NOW)


def base(devices: list[Object], *more: Object) -> list[Object]:
    return [node("n1"), gpu_class(), slice_of("n1", devices), *more, pod("p", claim="want")]


def test_counts_by_reason_most_first() -> None:
    """The request's name, all devices of the node, then reasons."""
    taint = {"key": "k", "effect": "NoSchedule"}
    devices = [device("a"), device("b"), device("c", model="H100"), device("d", taints=[taint])]
    items = base(devices, held("h", "n1", "a", "b"), want(request("gpu", 1, f'{MODEL} == "A100"')))
    assert summary(items) == "Devices: gpu: 4 devices: 2 in use, 1 selector false, 1 tainted."


def test_numbers_that_matter_are_told() -> None:
    """Capacity: what is free against what is asked."""
    share = held("h", "n1", "a", shareID="s", consumedCapacity={"memory": "30Gi"})
    wanted = want(request("gpu", 1, capacity={"requests": {"memory": "20Gi"}}))
    items = base([device("a", allowMultipleAllocations=True)], share, wanted)
    assert summary(items) == "Devices: gpu: 1 device: 1 memory 10Gi free < 20Gi."


def test_several_claims_are_told_apart_by_the_pods_entries() -> None:
    """Names of generated claims mean nothing to anybody; the Pod's own names do."""
    a100 = request("r", 1, f'{MODEL} == "A100"')
    items = base([device("a"), device("b", model="H100")], want(a100), want(a100, name="more"))
    items[-1]["spec"]["resourceClaims"].append({"name": "second", "resourceClaimName": "more"})
    told = summary(items)
    assert "gpu/r: 2 devices: 1 selector false" in told
    assert "second/r: 2 devices: 1 in use, 1 selector false" in told


def test_a_pool_that_is_incomplete_is_told() -> None:
    """No device is refused then, so the pool is all there is to say."""
    items = [node("n1"), gpu_class(), slice_of("n1", [device("a")], count=2), want(request()), pod("p", claim="want")]
    assert summary(items).startswith("Devices: 1 pool incomplete")


def test_nothing_to_say() -> None:
    """Without claims, or with a class that does not exist, upstream's sentence says all."""
    assert summary([node("n1"), pod("p", cpu="100")]) == ""
    assert summary([node("n1"), want(request("r", 1, deviceClassName="x")), pod("p", claim="want")]) == ""


def cluster(count: int) -> list[Object]:
    items = [gpu_class(), want(request("gpu", 2)), pod("p", claim="want")]
    for number in range(count):
        items += [node(f"n{number:04}"), slice_of(f"n{number:04}", [device("a")])]
        items.append(held(f"h{number}", f"n{number:04}", "a"))
    return items


def test_only_the_first_nodes_are_searched() -> None:
    """On a thousand nodes as many searches as on eight, and the note says so."""
    snap = snapshot(cluster(200))
    waiting = snap.pod("default", "p")
    profile, _ = snap.profile_for(waiting)
    plugin = profile.plugins["DynamicResources"]
    asked: list[str] = []
    real = plugin.device_reasons

    def counting(cycle: Any, one: Any, steps: int) -> Any:
        asked.append(one.name)
        return real(cycle, one, steps)

    plugin.device_reasons = counting
    text = device_summary(profile, waiting, snap.state, NOW)
    assert len(asked) == NODES_MAX
    assert text == f"Devices: gpu: {NODES_MAX} devices: {NODES_MAX} in use ({NODES_MAX} of 200 nodes)."
    summaries = Summaries()
    for _ in range(50):
        assert summaries.summary(profile, waiting, snap.state, NOW) == text
    assert len(asked) == 2 * NODES_MAX


def test_a_kept_summary_is_made_anew_when_devices_changed_and_a_second_has_passed() -> None:
    """Stale for a second at most; another shape of claims has its own."""
    items = cluster(1)
    snap = snapshot(items)
    waiting = snap.pod("default", "p")
    profile, _ = snap.profile_for(waiting)
    summaries = Summaries()
    first = summaries.summary(profile, waiting, snap.state, NOW)
    holder = snap.state.devices.claims["default/h0"]
    snap.state.apply(Change(RESOURCE_CLAIM, holder, None))
    other = convert(RESOURCE_CLAIM, completed(held("h9", "n0000", "gone"), RESOURCE_CLAIM))
    snap.state.apply(Change(RESOURCE_CLAIM, None, other))
    assert summaries.summary(profile, waiting, snap.state, NOW + 0.5) == first
    assert (
        summaries.summary(profile, waiting, snap.state, NOW + 100)
        == "Devices: gpu: 1 device on a node at most, 2 asked."
    )


def test_the_note_keeps_upstreams_sentence_whole_within_the_limit() -> None:
    """What is too long is cut at its end, so the summary gives way before the sentence."""
    sentence, more = "0/9 nodes are available: 9 cannot allocate all claims.", "Devices: " + "ä" * 1000
    note = event_note(f"{sentence} {more}")
    assert note.startswith(sentence)
    assert len(note.encode()) <= NOTE_BYTES_MAX
