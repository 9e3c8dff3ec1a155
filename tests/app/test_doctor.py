"""The doctor's round: how often it looks, and what it needs of a configuration."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from scheduler.api.kinds import POD, RESOURCE_CLAIM, RESOURCE_SLICE
from scheduler.api.podgroups import POD_GROUP
from scheduler.app.doctor import diagnose, partitions, settled
from scheduler.config import load_config
from scheduler.dra.limits import DeviceLimit
from scheduler.explain.doctor_facts import Diagnosis, DoctorFinding
from scheduler.explain.doctor_text import diagnosis_lines
from scheduler.whatif.objects import known_kinds, read_objects
from tests.app.objects import Object, node, pod
from tests.explain.clusters import device, held, slice_of

KINDS = known_kinds((POD, POD_GROUP, RESOURCE_CLAIM, RESOURCE_SLICE))
EMPTY = [{"kind": f"{kind}List", "apiVersion": "v1", "items": []} for kind in ("Pod", "ResourceClaim")]
DEVICES = slice_of("n1", [device("d0")])
LISTED = [*EMPTY, DEVICES]


def finding(check: str, name: str = "x") -> DoctorFinding:
    return DoctorFinding("warning", check, name, "", "", identity=(check, name))


class Looks:
    """Answers with one diagnosis after the other, and a clock that only sleeping moves."""

    def __init__(self, *looks: list[DoctorFinding]) -> None:
        self.looks, self.at, self.now = list(looks), [], 0.0  # type: ignore[var-annotated]

    async def look(self) -> Diagnosis:
        self.at.append(self.now)
        return Diagnosis(self.looks.pop(0))

    async def sleep(self, pause_s: float) -> None:
        self.now += pause_s

    async def settled(self, settle_s: float | None = None) -> Diagnosis:
        return await settled(self.look, settle_s, lambda: self.now, self.sleep)


async def test_a_healthy_cluster_is_looked_at_once() -> None:
    """No finding, no waiting."""
    looks = Looks([])
    assert (await looks.settled()).findings == []
    assert looks.at == [0.0]


async def test_findings_are_looked_at_until_they_have_settled() -> None:
    """After 5 s for what should never be, after 20 s for what a controller tidies up."""
    twice, leaked = finding("device-held-twice"), finding("reserved-for-nobody")
    looks = Looks([twice, leaked], [leaked, twice], [leaked, finding("device-gone")])
    assert (await looks.settled()).findings == [leaked]
    assert looks.at == [0.0, 5.0, 20.0]


async def test_the_last_look_is_the_one_that_is_told() -> None:
    """Versions in commands must be the newest."""
    newer = DoctorFinding("warning", "device-gone", "x", "newer", "", identity=("device-gone", "x"))
    looks = Looks([finding("device-gone")], [newer])
    assert (await looks.settled()).findings == [newer]


async def test_the_wait_can_be_chosen() -> None:
    """--settle: 0 tells the first look."""
    looks = Looks([finding("reserved-for-nobody")])
    assert len((await looks.settled(0.0)).findings) == 1
    assert looks.at == [0.0]


def test_a_partition_counts_only_when_it_is_enabled() -> None:
    """Arguments of a plugin that no profile runs part nothing."""
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: parted
  plugins: {multiPoint: {enabled: [{name: Partition}]}}
  pluginConfig: [{name: Partition, args: {drivers: [d], pools: [p]}}]
- schedulerName: open
  pluginConfig: [{name: Partition, args: {drivers: [d]}}]
"""
    limit = DeviceLimit(frozenset({"d"}), frozenset({"p"}))
    assert partitions(load_config(text)) == {"parted": limit, "open": DeviceLimit()}


def damaged() -> list[Object]:
    """Something of everything the doctor looks at."""
    user, gone = pod("a", claim="a", nodeName="n1"), held("ghost", "n1", "d1", pod="gone")
    share = held("s", "n1", "d0", pod="a", shareID="1", consumedCapacity={"memory": "50Gi"})
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u"}
    share["status"]["reservedFor"].append(group)
    return [node("n1"), slice_of("n1", [device("d0", allowMultipleAllocations=True)]), held("a", "n1", "d0", pod="a"),
            user, gone, share]  # fmt: skip


STRANGE = (None, 5, -1, 1e300, True, "", "x", "1Zi", "\u0000", [], [5], {}, {"x": 1}, [None], "9" * 400)


def leaves(item: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything inside."""
    pairs = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    for key, value in pairs:
        yield (*path, key)
        yield from leaves(value, (*path, key))


@pytest.mark.parametrize("seed", range(8))
def test_no_dump_ends_in_an_exception(seed: int) -> None:
    """Any field of any object with any value, 50 times: the object is told or judged, and the others are."""
    draw = random.Random(seed)
    for _ in range(50):
        items = damaged()
        for _ in range(draw.randint(1, 3)):
            *steps, last = draw.choice(list(leaves(items)))
            holder: Any = items
            for step in steps:
                holder = holder[step]
            holder[last] = copy.deepcopy(draw.choice(STRANGE))
        found = diagnose(read_objects(items, KINDS), {})
        assert list(diagnosis_lines(found))
        assert msgspec.json.encode(found)


def group(name: str, namespace: str = "default", **fields: Any) -> Object:
    """A PodGroup."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": POD_GROUP.api_version, "kind": "PodGroup", "metadata": metadata, **fields}


def reserved_for_group(name: str = "c") -> Object:
    """A claim reserved for the PodGroup g, with a device."""
    claim = held(name, "n1", "d0")
    reference = {"apiGroup": POD_GROUP.group, "resource": "podgroups", "name": "g", "uid": "podgroup/default/g"}
    claim["status"]["reservedFor"] = [reference]
    return claim


UNREADABLE = [
    pod("p", claim="c", nodeName="n1", priority="oops"),
    {"kind": "Pod", "apiVersion": "v7", "metadata": {"name": "p", "namespace": "default"}},
    {"kind": "Pod", "apiVersion": "v7", "metadata": {"name": "p"}},
    {"kind": "Pod", "apiVersion": "v1", "metadata": {}},
    {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": 5}},
    {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": [5]},
    {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": "oops"},
    {"kind": "PodList", "apiVersion": "v1", "items": [5]},
]


@pytest.mark.parametrize("unreadable", UNREADABLE)
@pytest.mark.parametrize("reserved", ["", "p"])
def test_a_pod_that_cannot_be_read_keeps_its_claim(unreadable: Object, reserved: str) -> None:
    """It may be bound and run with the devices, whatever is wrong with it: the leak is told and not repaired."""
    (told,) = diagnose(read_objects([*LISTED, held("c", "n1", "d0", pod=reserved)], KINDS), {}).findings
    assert told.repair is not None
    found = diagnose(read_objects([*LISTED, held("c", "n1", "d0", pod=reserved), unreadable], KINDS), {})
    (doubtful,) = found.findings
    assert (doubtful.identity, doubtful.repair, doubtful.commands) == (told.identity, None, ())
    assert "a Pod that may use it could not be read" in doubtful.advice
    assert any(caveat.startswith("left out: ") for caveat in found.caveats)


@pytest.mark.parametrize("unreadable", [group("g", spec="oops"), group("g") | {"apiVersion": "scheduling.k8s.io/v9"}])
def test_a_pod_group_that_cannot_be_read_keeps_its_claim(unreadable: Object) -> None:
    """It is not the same as one that does not exist."""
    (told,) = diagnose(read_objects([*LISTED, reserved_for_group(), group("other")], KINDS), {}).findings
    assert told.repair is not None
    (doubtful,) = diagnose(read_objects([*LISTED, reserved_for_group(), unreadable], KINDS), {}).findings
    assert (doubtful.identity, doubtful.repair, doubtful.commands) == (told.identity, None, ())


def test_what_cannot_be_read_elsewhere_does_not_matter() -> None:
    """One bad object does not end all repairs."""
    strangers = [pod("p", priority="oops"), group("g", "elsewhere", spec="oops")]
    strangers[0]["metadata"]["namespace"] = "elsewhere"
    items = [*LISTED, held("c", "n1", "d0"), reserved_for_group("d")]
    findings = diagnose(read_objects([*items, *strangers], KINDS), {}).findings
    assert [one.check for one in findings if one.repair is not None] == ["reserved-for-nobody", "allocated-unreserved"]


def test_nobody_is_told_to_delete_pods_for_what_could_not_be_read() -> None:
    """Claims and slices that are left out, or not listed, are not missing."""
    user, claim = pod("a", claim="a", nodeName="n1"), held("a", "n1", "d0", pod="a")
    bad_claim, bad_slice = claim | {"spec": "oops"}, DEVICES | {"spec": "oops"}
    assert len(diagnose(read_objects([*LISTED, user], KINDS), {}).findings) == 1
    assert (
        len(
            diagnose(
                read_objects([*EMPTY, DEVICES | {"spec": {**DEVICES["spec"], "devices": []}}, user, claim], KINDS), {}
            ).findings
        )
        == 1
    )
    for items in ([*LISTED, user, bad_claim], [DEVICES, user], [*EMPTY, user, claim, bad_slice]):
        found = diagnose(read_objects(items, KINDS), {})
        assert (found.findings, bool(found.caveats)) == ([], True)
    assert "a ResourceSlice could not be read: whether devices exist was not judged" in found.caveats
