"""The doctor: every damage is found and nothing else, and what is repaired is never in use."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.api.kinds import NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, convert
from scheduler.api.resource import ConsumerReference, ResourceClaim
from scheduler.dra.limits import DeviceLimit
from scheduler.explain.doctor import Settling, by_check, examine
from scheduler.explain.doctor_facts import Diagnosis, DoctorFinding, Look
from scheduler.explain.doctor_heal import unreserve, without_finalizers
from scheduler.explain.doctor_text import diagnosis_lines
from scheduler.whatif.objects import known_kinds, read_objects
from tests.app.objects import node, pod
from tests.explain.clusters import DRIVER, Object, device, held, slice_of, want

KINDS = known_kinds((NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE))
GONE = ConsumerReference(resource="pods", name="gone", uid="pod/default/gone")
GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u"}


def look(
    items: list[Object],
    ours: dict[str, DeviceLimit] | None = None,
    *,
    groups: list[str] | None = None,
    unread: dict[str, set[str]] | None = None,
    **known: bool,
) -> Look:
    objects = read_objects(items, KINDS)
    assert objects.problems == []
    return Look(
        objects.of("ResourceClaim"),
        objects.of("Pod"),
        objects.of("ResourceSlice"),
        groups,
        {"dra-scheduler": DeviceLimit()} if ours is None else ours,
        unread=unread,
        **known,
    )


def found(items: list[Object], ours: dict[str, DeviceLimit] | None = None, **known: Any) -> list[DoctorFinding]:
    return examine(look(items, ours, **known)).findings


def one(items: list[Object], **known: Any) -> DoctorFinding:
    (finding,) = found(items, **known)
    return finding


def running(name: str, claim: str, **more: Any) -> Object:
    return pod(name, claim=claim, nodeName="n1", **more)


def cluster(*more: Object) -> list[Object]:
    """A node with three devices, one of them used by Pod a, as it should be."""
    devices = [device("d0"), device("d1"), device("d2", allowMultipleAllocations=True)]
    return [node("n1"), slice_of("n1", devices), held("a", "n1", "d0", pod="a"), running("a", "a"), *more]


def later(claim: Object, time: str = "2027-01-15T07:30:00Z") -> Object:
    claim["status"]["allocation"]["allocationTimestamp"] = time
    return claim


def test_a_healthy_cluster_has_no_finding() -> None:
    """Used, shared, free and waiting: nothing is wrong with any of them."""
    items = cluster(want(name="w"), pod("w", claim="w"))
    for number in range(2):
        share = held(
            f"s{number}", "n1", "d2", pod=f"s{number}", shareID=f"{number}", consumedCapacity={"memory": "20Gi"}
        )
        items += [share, running(f"s{number}", f"s{number}")]
    assert found(items) == []


def test_a_device_with_two_holders() -> None:
    """The later claim's Pod is the one to go, by the time of allocation, whatever the names are."""
    finding = one(cluster(later(held("0-later", "n1", "d0", pod="b")), running("b", "0-later")))
    assert (finding.check, finding.severity, finding.subject) == (
        "device-held-twice",
        "error",
        f"Device {DRIVER}/n1/d0",
    )
    assert "claims default/a, default/0-later at the same time; default/a had it first" in finding.what
    assert finding.commands == ("kubectl delete pod -n default b",)
    assert "no controller creates default/b again" in finding.advice
    assert finding.repair is None


def test_a_second_holder_without_pods_is_released() -> None:
    """Nobody uses the later claim: its allocation can be cleared, which the other finding does without asking."""
    twice, idle = found(cluster(later(held("idle", "n1", "d0"))))
    assert (twice.check, idle.check) == ("device-held-twice", "allocated-unreserved")
    assert twice.commands == idle.commands
    assert idle.repair is not None
    assert json.loads(idle.repair.body)["status"]["allocation"] is None


@pytest.mark.parametrize("times", [(None, None), ("2027-01-15T07:00:00Z", None), ("2027-01-15T07:00:00Z",) * 2])
def test_who_was_first_is_not_made_up(times: tuple[str | None, str | None]) -> None:
    """Without two different times nobody is said to have come first, and whom the commands hit is named."""
    claims = [held(name, "n1", "d1", pod=name) for name in ("x", "y")]
    for claim, time in zip(claims, times, strict=True):
        claim["status"]["allocation"].pop("allocationTimestamp")
        if time is not None:
            later(claim, time)
    finding = one(cluster(*claims, running("x", "x"), running("y", "y")))
    assert finding.what.endswith("at the same time; it is not known which of them had it first")
    assert finding.advice.startswith("choose who keeps it: the commands let default/y go; no controller creates")
    assert finding.commands == ("kubectl delete pod -n default y",)


def test_a_command_that_heals_two_things_is_printed_once() -> None:
    """Where it is needed again the text says under what it stands; the data has it with each finding."""
    diagnosis = examine(look(cluster(later(held("idle", "n1", "d0")))))
    twice, idle = diagnosis.findings
    lines = list(diagnosis_lines(diagnosis))
    assert twice.commands == idle.commands
    assert sum("kubectl patch resourceclaim idle" in line for line in lines) == 1
    assert f"  heals it: what stands above under Device {DRIVER}/n1/d0" in lines


def test_an_exclusive_holder_beside_a_share() -> None:
    """A share and a whole device exclude each other."""
    share = held("s", "n1", "d2", pod="s", shareID="1", consumedCapacity={"memory": "1Gi"})
    finding = one(cluster(share, running("s", "s"), later(held("x", "n1", "d2", pod="x")), running("x", "x")))
    assert finding.check == "device-held-twice"
    assert finding.commands == ("kubectl delete pod -n default x",)


def test_one_claim_that_names_a_device_twice() -> None:
    """Two results with one device are two holders, too."""
    finding = one(cluster(held("t", "n1", "d1", "d1", pod="t"), running("t", "t")))
    assert "claim default/t names it more than once" in finding.what


def test_admin_access_holds_nothing() -> None:
    """A monitor may look at a device that somebody uses."""
    assert found(cluster(held("m", "n1", "d0", pod="m", adminAccess=True), running("m", "m"))) == []


def test_shares_beyond_capacity() -> None:
    """40Gi, given as 20, 15 and 10: the youngest that does not fit goes, amounts are told."""
    items = cluster()
    for number, amount in enumerate((20, 15, 10)):
        name = f"s{number}"
        share = held(name, "n1", "d2", pod=name, shareID=name, consumedCapacity={"memory": f"{amount}Gi"})
        items += [later(share, f"2027-01-15T07:0{number}:00Z"), running(name, name)]
    finding = one(items)
    assert finding.check == "capacity-exceeded"
    assert "memory: 45Gi given of 40Gi" in finding.what
    assert finding.commands == ("kubectl delete pod -n default s2",)


def counted(*held_devices: str) -> list[Object]:
    """A pool of four parts and a whole over one counter of 4; the given devices are held."""

    def charged(name: str, value: str) -> Object:
        consumes = [{"counterSet": "set", "counters": {"slots": {"value": value}}}]
        return {"name": name, "consumesCounters": consumes}

    counters = {"sharedCounters": [{"name": "set", "counters": {"slots": {"value": "4"}}}]}
    parts = [charged("whole", "4"), *(charged(f"part{number}", "1") for number in range(4))]
    items = [node("n1"), slice_of("n1", parts, count=2), slice_of("n1", [], name="counters", count=2, **counters)]
    for number, name in enumerate(held_devices):
        items += [later(held(name, "n1", name, pod=name), f"2027-01-15T07:0{number}:00Z"), running(name, name)]
    return items


def test_overlapping_partitions() -> None:
    """The whole and a part of it: the later one goes. Four parts alone are well."""
    assert found(counted("part0", "part1", "part2", "part3")) == []
    finding = one(counted("whole", "part2"))
    assert finding.check == "counters-exceeded"
    assert "set/slots: 5 of 4" in finding.what
    assert finding.commands == ("kubectl delete pod -n default part2",)


def test_reserved_for_a_pod_that_does_not_exist() -> None:
    """Repaired by clearing the allocation, bound to uid and version; the command is the same write."""
    finding = one(cluster(held("ghost", "n1", "d1", pod="gone")))
    assert (finding.check, finding.severity) == ("reserved-for-nobody", "warning")
    assert "Pod gone (uid pod/default/gone), which does not exist" in finding.what
    assert finding.repair is not None
    body = json.loads(finding.repair.body)
    assert body["metadata"] == {"uid": "resourceclaim/default/ghost", "resourceVersion": "1"}
    assert body["status"] == {"allocation": None, "reservedFor": None, "devices": None}
    assert finding.repair.nobody == (GONE,)
    (command,) = finding.commands
    assert shlex.split(command) == ["kubectl", "patch", "resourceclaim", "ghost", "-n", "default", "--type=merge",
                                    "--subresource=status", "-p", finding.repair.body]  # fmt: skip


def test_a_pod_of_the_same_name_is_another_pod() -> None:
    """A Pod that was created again under its name does not keep the old one's claim alive."""
    again = pod("gone")
    again["metadata"]["uid"] = "another"
    assert one(cluster(held("ghost", "n1", "d1", pod="gone"), again)).check == "reserved-for-nobody"


def test_an_ended_pod_keeps_nothing() -> None:
    """Finished Pods use no device."""
    ended = running("done", "c") | {"status": {"phase": "Succeeded"}}
    assert "has ended" in one(cluster(held("c", "n1", "d1", pod="done"), ended)).what


def test_a_shared_claim_loses_only_the_dead() -> None:
    """A claim in use keeps its allocation and the entries of those who live, byte for byte."""
    shared = held("c", "n1", "d1", pod="gone")
    alive = {"resource": "pods", "name": "b", "uid": "pod/default/b", "unknownField": 1.50}
    shared["status"]["reservedFor"].append(alive)
    finding = one(cluster(shared, running("b", "c")))
    assert finding.repair is not None
    assert json.loads(finding.repair.body)["status"] == {"reservedFor": [alive]}
    assert finding.repair.nobody == (GONE,)


def test_a_bound_pod_that_names_the_claim_keeps_the_devices() -> None:
    """Reserved for a dead Pod alone, but a running one uses it: nothing is repaired, and no command frees a device."""
    kinds = {one.check: one for one in found(cluster(held("c", "n1", "d1", pod="gone"), running("b", "c")))}
    assert set(kinds) == {"pod-without-claim", "reserved-for-nobody"}
    assert kinds["reserved-for-nobody"].repair is None
    assert "allocation" not in kinds["reserved-for-nobody"].commands[0]


@pytest.mark.parametrize("consumer", [{"apiGroup": "example.com", "resource": "jobs"}, {"resource": "podgroups"}])
def test_consumers_that_cannot_be_looked_up_are_left_alone(consumer: Object) -> None:
    """Who knows nothing of a consumer does not call it dead."""
    claim = held("c", "n1", "d1")
    claim["status"]["reservedFor"] = [{"name": "x", "uid": "u", **consumer}]
    assert found(cluster(claim)) == []


def test_without_pods_in_the_input_nobody_is_gone() -> None:
    """A dump without Pods accuses nobody, and one without slices misses no device."""
    items = [item for item in cluster(held("ghost", "n1", "d1", pod="gone")) if item["kind"] != "Pod"]
    assert found(items, pods_known=False) == []
    assert found([item for item in cluster() if item["kind"] != "ResourceSlice"], slices_known=False) == []


def for_group(name: str = "c", **reference: str) -> Object:
    """A claim with a device that is reserved for a PodGroup."""
    claim = held(name, "n1", "d1")
    claim["status"]["reservedFor"] = [{**GROUP, **reference}]
    return claim


def test_a_pod_group_that_does_not_exist_is_nobody() -> None:
    """It is asked for before the write, as a Pod is; one that exists keeps its claim."""
    finding = one(cluster(for_group()), groups=["another"])
    assert (finding.check, "PodGroup g (uid u), which does not exist" in finding.what) == ("reserved-for-nobody", True)
    assert finding.repair is not None
    assert finding.repair.nobody == (ConsumerReference(**GROUP),)
    assert found(cluster(for_group()), groups=["u"]) == []


def test_another_projects_pod_group_is_none_of_ours() -> None:
    """scheduling.x-k8s.io has PodGroups, too: who is not in our list of them may well live."""
    assert found(cluster(for_group(apiGroup="scheduling.x-k8s.io")), groups=[]) == []


def leaks() -> dict[str, Object]:
    """Check → a claim of which it tells, that is repaired when everybody is known."""
    stuck = want(name="c")
    stuck["metadata"] |= {
        "finalizers": ["resource.kubernetes.io/delete-protection"],
        "deletionTimestamp": "2027-01-15T07:00:00Z",
    }
    return {
        "reserved-for-nobody": held("c", "n1", "d1", pod="gone"),
        "allocated-unreserved": held("c", "n1", "d1"),
        "deletion-stuck": stuck,
    }


@pytest.mark.parametrize("check", leaks())
@pytest.mark.parametrize("namespace", ["default", ""])
def test_who_could_not_be_read_may_be_who_is_not_seen(check: str, namespace: str) -> None:
    """A Pod of the claim's namespace, or of nobody knows which: told, with the reason why nothing is written."""
    finding = one(cluster(leaks()[check]), unread={"Pod": {namespace}})
    assert (finding.check, finding.repair, finding.commands) == (check, None, ())
    assert "no write for it is offered, because a Pod that may use it could not be read" in finding.advice
    assert "does not exist" not in finding.what


@pytest.mark.parametrize("check", leaks())
def test_pods_of_other_namespaces_do_not_matter(check: str) -> None:
    """Claims are used in their own namespace only."""
    assert one(cluster(leaks()[check]), unread={"Pod": {"elsewhere"}}).repair is not None


@pytest.mark.parametrize("check", ["allocated-unreserved", "deletion-stuck"])
def test_without_pods_in_the_input_nothing_is_written(check: str) -> None:
    """Whoever uses the claim would be among them."""
    items = [item for item in cluster(leaks()[check]) if item["kind"] != "Pod"]
    finding = one(items, pods_known=False)
    assert (finding.check, finding.repair, finding.commands) == (check, None, ())


def test_a_pod_group_that_could_not_be_read_may_be_the_one_that_is_missing() -> None:
    """The reservation stays; claims that are reserved for Pods alone are repaired all the same."""
    unread = {"PodGroup": {"default"}}
    finding = one(cluster(for_group()), groups=[], unread=unread)
    assert (finding.check, finding.repair, finding.commands) == ("reserved-for-nobody", None, ())
    assert "PodGroup g (uid u), which is not among those that could be read" in finding.what
    assert "because a PodGroup that may be the one it is reserved for could not be read" in finding.advice
    assert one(cluster(held("c", "n1", "d1", pod="gone")), groups=[], unread=unread).repair is not None


def test_no_command_frees_what_an_unread_pod_may_use() -> None:
    """A second holder without any Pod in sight: the finding says why it has no command."""
    twice, _ = found(cluster(later(held("idle", "n1", "d0"))), unread={"Pod": {"default"}})
    assert (twice.check, twice.commands) == ("device-held-twice", ())
    assert "no write for claim default/idle is offered" in twice.advice


def test_a_claim_that_could_not_be_read_is_not_missing() -> None:
    """Its Pod is not accused, and nobody is told to delete it."""
    assert one(cluster(running("b", "c"))).check == "pod-without-claim"
    assert found(cluster(running("b", "c")), unread={"ResourceClaim": {"default"}}) == []
    assert one(cluster(running("b", "c")), unread={"ResourceClaim": {"elsewhere"}}).check == "pod-without-claim"


@pytest.mark.parametrize("heal", ["unreserve", "without_finalizers"])
def test_every_write_is_bound_to_what_was_looked_at(heal: str) -> None:
    """uid and resourceVersion stand in the patch beside the change: a claim made anew, or touched, is not hit."""
    item = held("c", "n1", "d1", pod="gone")
    item["metadata"] |= {"uid": "u1", "resourceVersion": "77", "finalizers": ["x/y", "x/z"]}
    claim: ResourceClaim = convert(RESOURCE_CLAIM, item)
    bound = {"uid": "u1", "resourceVersion": "77"}
    if heal == "unreserve":
        expected: Object = {"metadata": bound, "status": {"reservedFor": []}}
        repair = unreserve(claim, ["pod/default/gone"])
    else:
        expected = {"metadata": {**bound, "finalizers": ["x/z"]}}
        repair = without_finalizers(claim, ["x/y"])
    assert json.loads(repair.body) == expected
    assert (repair.uid, repair.version, repair.nobody, repair.frees) == ("u1", "77", (GONE,), heal != "unreserve")


def test_allocated_and_unreserved() -> None:
    """Told with those who may still use it; not while it is being deleted, nor when a bound Pod names it."""
    finding = one(cluster(held("idle", "n1", "d1"), pod("w", claim="idle")))
    assert finding.check == "allocated-unreserved"
    assert "default/w may still use it" in finding.what
    assert finding.repair is not None


def test_devices_that_no_slice_has() -> None:
    """A device gone from its pool, and a pool that is gone: the second may be a driver that restarts."""
    gone = one(cluster(held("g", "n1", "d9", pod="g"), running("g", "g")))
    assert (gone.check, gone.severity) == ("device-gone", "warning")
    assert f"holds {DRIVER}/n1/d9, which no ResourceSlice has" in gone.what
    assert gone.commands == ("kubectl delete pod -n default g",)
    absent = one([*cluster(), held("g", "n7", "d9", pod="g"), running("g", "g")])
    assert f"nothing is published for {DRIVER}/n7" in absent.advice


def test_a_driver_that_writes_a_new_generation_has_not_lost_anything() -> None:
    """While the newest generation is incomplete, older slices still speak."""
    old = slice_of("n1", [device("d0"), device("d1")], name="one", count=2)
    new = slice_of("n1", [device("d0")], name="two", generation=2, count=2)
    user = [node("n1"), held("a", "n1", "d1", pod="a"), running("a", "a")]
    assert found([*user, old, new]) == []
    complete = slice_of("n1", [], name="three", generation=2, count=2)
    assert [f.check for f in found([*user, old, new, complete])] == ["device-gone"]


def test_a_slice_that_cannot_be_read_loses_nothing() -> None:
    """A capacity that is no quantity makes the pool unusable; it does not make its devices disappear."""
    bad = slice_of("n1", [device("d0"), device("d1", memory="6 GiB")])
    assert found([node("n1"), bad, held("a", "n1", "d0", pod="a"), running("a", "a")]) == []


@pytest.mark.parametrize(
    ("claim", "lack"),
    [
        (None, "claim c does not exist"),
        (want(name="c"), "claim c has no devices"),
        (held("c", "n1", "d1", pod="a"), "claim c is not reserved for it"),
    ],
)
def test_bound_without_a_reserved_claim(claim: Object | None, lack: str) -> None:
    """The three ways in which a bound Pod can lack its claim."""
    items = cluster(running("b", "c"), *([claim] if claim else []))
    finding = one(items)
    assert (finding.check, finding.severity, finding.subject) == ("pod-without-claim", "error", "Pod default/b")
    assert lack in finding.what
    assert finding.commands == ("kubectl delete pod -n default b",)


@pytest.mark.parametrize("change", [{"status": {"phase": "Failed"}}, {"deletionTimestamp": "2027-01-15T07:00:00Z"}])
def test_a_pod_that_ends_needs_no_claim(change: Object) -> None:
    """Ended, or on its way out."""
    item = running("b", "c")
    if "status" in change:
        item |= change
    else:
        item["metadata"] |= change
    assert found(cluster(item)) == []


def test_a_claim_of_the_pods_group_is_reserved_for_it() -> None:
    """Reserved for the PodGroup stands for its Pods."""
    claim = held("c", "n1", "d1")
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u"}
    claim["status"]["reservedFor"] = [group]
    assert found(cluster(claim, running("b", "c", schedulingGroup={"podGroupName": "g"}))) == []


def test_foreign_finalizers() -> None:
    """Worth knowing while the claim lives, an error once its deletion waits for it; never repaired unasked."""
    claim = held("a", "n1", "d0", pod="a")
    claim["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection", "example.com/mine"]
    items = [item for item in cluster() if item["kind"] != "ResourceClaim"]
    finding = one([*items, claim])
    assert (finding.check, finding.severity) == ("foreign-finalizer", "note")
    claim["metadata"]["deletionTimestamp"] = "2027-01-15T07:00:00Z"
    finding = one([*items, claim])
    assert (finding.severity, finding.repair) == ("error", None)
    body = json.loads(shlex.split(finding.commands[0])[-1])
    assert body["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]


def test_a_deletion_that_does_not_end() -> None:
    """Nobody uses it, only Kubernetes' own finalizer is left: that may be taken off."""
    claim = want(name="c")
    claim["metadata"] |= {
        "finalizers": ["resource.kubernetes.io/delete-protection"],
        "deletionTimestamp": "2027-01-15T07:00:00Z",
    }
    finding = one(cluster(claim))
    assert finding.check == "deletion-stuck"
    assert finding.repair is not None
    assert json.loads(finding.repair.body)["metadata"]["finalizers"] is None
    holding = held("c", "n1", "d1")
    holding["metadata"] |= claim["metadata"]
    finding = one(cluster(holding))
    assert (finding.check, len(finding.commands)) == ("deletion-stuck", 2)
    assert "resourceVersion" not in finding.commands[1]


def two_schedulers(pool_of_other: str) -> list[Object]:
    other = held("o", pool_of_other, "d1", pod="o")
    return [*cluster(slice_of("n2", [device("d1")]), other), running("o", "o", scheduler="default-scheduler")]


def test_two_schedulers_on_one_pool() -> None:
    """A warning with the arguments of the Partition that would part them; gone once the profile has one."""
    finding = one(two_schedulers("n1"))
    assert (finding.check, finding.severity, finding.subject) == ("schedulers-overlap", "warning", f"Driver {DRIVER}")
    assert "default-scheduler and dra-scheduler both give away devices of pool n1" in finding.what
    assert "plugin Partition" in finding.advice
    parted = {"dra-scheduler": DeviceLimit(pools=frozenset({"n3"}))}
    assert found(two_schedulers("n1"), parted) == []


def test_two_schedulers_on_one_driver() -> None:
    """Different pools so far and no partition: a note, no more."""
    finding = one(two_schedulers("n2"))
    assert finding.severity == "note"
    assert found(two_schedulers("n2"), {"dra-scheduler": DeviceLimit(pools=frozenset({"n1"}))}) == []


def test_profiles_of_one_scheduler_do_not_overlap() -> None:
    """One process, one ledger."""
    both = {"dra-scheduler": DeviceLimit(), "default-scheduler": DeviceLimit()}
    assert found(two_schedulers("n1"), both) == []


def test_findings_have_to_stay() -> None:
    """What the second look does not show any more was only in flight; what it shows anew waits for the next run."""
    first = examine(look(cluster(held("ghost", "n1", "d1", pod="gone"), running("b", "b"))))
    assert by_check(first.findings) == {"pod-without-claim": 1, "reserved-for-nobody": 1}
    settling = Settling(first)
    assert settling.next_look_s() == 5.0
    second = examine(look(cluster(held("ghost", "n1", "d1", pod="gone"), running("c", "c"))))
    left = settling.look_again(second, 5.0)
    assert by_check(left.findings) == {"reserved-for-nobody": 1}
    assert settling.next_look_s() == 20.0
    assert settling.look_again(examine(look(cluster())), 20.0).findings == []
    assert settling.next_look_s() is None


def test_one_look_is_enough_when_told_so() -> None:
    """settle_s=0: what the first look shows is told."""
    assert Settling(examine(look(cluster(held("ghost", "n1", "d1", pod="gone")))), 0.0).next_look_s() is None


def test_the_text_has_each_command_on_a_line_of_its_own() -> None:
    """So that it can be pasted; counts at the end."""
    diagnosis = examine(look(cluster(held("ghost", "n1", "d1", pod="gone"))))
    lines = list(diagnosis_lines(diagnosis))
    assert f"    {diagnosis.findings[0].commands[0]}" in lines
    assert "0 errors, 1 warning, 0 notes (looked at: ResourceClaim 2, Pod 1, ResourceSlice 1)" in lines


NAMES = st.sampled_from(["p0", "p1", "p2", "p3"])
DEVICES = st.sampled_from(["d0", "d1", "d2", "d9"])


@st.composite
def clusters(draw: st.DrawFn) -> list[Object]:
    """Any mixture of claims, reservations and Pods."""
    items: list[Object] = [node("n1"), slice_of("n1", [device("d0"), device("d1"), device("d2")])]
    for number in range(draw(st.integers(0, 5))):
        claim = held(f"c{number}", "n1", draw(DEVICES)) if draw(st.booleans()) else want(name=f"c{number}")
        names = draw(st.lists(NAMES, max_size=3, unique=True))
        claim.setdefault("status", {})["reservedFor"] = [
            {"resource": "pods", "name": name, "uid": f"pod/default/{name}"} for name in names
        ]
        items.append(claim)
    for name in draw(st.lists(NAMES, unique=True)):
        placed = {"nodeName": "n1"} if draw(st.booleans()) else {}
        item = pod(name, claim=f"c{draw(st.integers(0, 5))}", **placed)
        item["status"] = {"phase": draw(st.sampled_from(["Pending", "Running", "Succeeded"]))}
        items.append(item)
    return items


def repaired(items: list[Object], diagnosis: Diagnosis) -> list[Object]:
    """The cluster after all repairs."""
    changed = json.loads(json.dumps(items))
    for finding in diagnosis.findings:
        if finding.repair is None:
            continue
        claim = next(
            i for i in changed if i["kind"] == "ResourceClaim" and i["metadata"]["name"] == finding.repair.name
        )
        for key, value in json.loads(finding.repair.body)["status"].items():
            claim["status"].pop(key, None)
            if value is not None:
                claim["status"][key] = value
    return changed


@given(clusters())
@settings(max_examples=200, deadline=None)
def test_repairs_never_touch_what_is_used_and_are_enough(items: list[Object]) -> None:
    """Whatever the cluster: a living Pod that was reserved stays so with its devices, and a second run repairs nothing
    that is still there.
    """
    before = look(items)
    diagnosis = examine(before)
    after = look(repaired(items, diagnosis))
    for claim in before.claims:
        now = after.by_key[claim.key]
        living = {user.uid for user in before.pods_of(claim)}
        assert living <= {one.uid for one in now.consumers}
        if claim.status.allocation is not None and before.in_use(claim):
            assert now.status.allocation is not None
    assert [finding for finding in examine(after).findings if finding.repair is not None] == []
