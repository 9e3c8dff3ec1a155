"""What the pretended kubelet admits, refuses and counts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.embedded.kubelet_admission import (
    DeviceKey,
    NodeAccount,
    claim_names,
    claim_refusal,
    devices_of,
    node_selector_matches,
    pod_requests,
    quantity,
)
from scheduler.embedded.kubelet_record import DeviceUse

Object = dict[str, Any]


def container(name: str = "c", ports: Any = None, **requests: Any) -> Object:
    return {"name": name, "resources": {"requests": requests}, "ports": ports or []}


def pod(uid: str, *containers: Object, **spec: Any) -> Object:
    return {
        "metadata": {"name": f"p-{uid}", "namespace": "ns", "uid": uid},
        "spec": {"containers": list(containers) or [container()], **spec},
        "status": {},
    }


def node(name: str = "n", labels: Any = None, **allocatable: str) -> Object:
    resources = {"pods": "110", **allocatable}
    return {"metadata": {"name": name, "labels": labels or {}}, "status": {"allocatable": resources}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100m", Fraction(1, 10)),
        ("1.5Gi", Fraction(3 * 1024**3, 2)),
        ("2e3", Fraction(2000)),
        ("1E", Fraction(10**18)),
        ("5n", Fraction(5, 10**9)),
        (".5", Fraction(1, 2)),
        (3, Fraction(3)),
    ],
)
def test_quantities_are_exact(text: str | int, value: Fraction) -> None:
    """Decimal, binary and exponent forms give the exact number."""
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "abc", "1ki", "--1"])
def test_nonsense_is_no_quantity(text: str) -> None:
    """What is no quantity is refused, not read as zero."""
    with pytest.raises(ValueError):
        quantity(text)


def test_requests_count_the_largest_moment() -> None:
    """An init container counts beside the sidecars started before it; overhead comes on top; milli rounds up."""
    sidecar = {**container("s", cpu="300m"), "restartPolicy": "Always"}
    inits = [container("before", cpu="900m"), sidecar, container("after", cpu="800m")]
    assert pod_requests(pod("a", container(cpu="500m"), initContainers=inits))["cpu"] == 1100
    assert pod_requests(pod("a", container(cpu="1"), initContainers=inits))["cpu"] == 1300
    assert pod_requests(pod("a", container(cpu="1"), overhead={"cpu": "0.1001"}))["cpu"] == 1101


def test_pod_level_requests_replace_the_sum() -> None:
    """cpu and memory of the Pod itself win over its containers; other names of the Pod level do not exist."""
    whole = pod("a", container(cpu="1", memory="1Gi"), resources={"requests": {"cpu": "3"}})
    assert pod_requests(whole) == {"cpu": 3000, "memory": 1024**3}


def test_a_claim_pays_for_an_extended_resource() -> None:
    """What a request mapping covers is not taken from the node."""
    backed = pod("a", container("c", **{"example.com/gpu": "2", "cpu": "1"}))
    mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}
    backed["status"]["extendedResourceClaimStatus"] = {"requestMappings": [mapping], "resourceClaimName": "x"}
    assert pod_requests(backed) == {"cpu": 1000}
    assert claim_names(backed) == ([("x", False)], None)


@pytest.mark.parametrize(
    ("allocatable", "requests", "reason", "text"),
    [
        ({"cpu": "1"}, {"cpu": "1001m"}, "OutOfcpu", "cpu, requested: 1001, used: 0, capacity: 1000"),
        ({"memory": "1Ki"}, {"memory": "2Ki"}, "OutOfmemory", "memory, requested: 2048, used: 0, capacity: 1024"),
        ({"pods": "0"}, {}, "OutOfpods", "pods, requested: 1, used: 0, capacity: 0"),
        ({}, {"ephemeral-storage": "1"}, "OutOfephemeral-storage", "ephemeral-storage, requested: 1, used: 0"),
        ({"e.com/x": "1"}, {"e.com/x": "2"}, "OutOfe.com/x", "e.com/x, requested: 2, used: 0, capacity: 1"),
    ],
)
def test_rejections_say_what_is_short(
    allocatable: dict[str, str], requests: dict[str, str], reason: str, text: str
) -> None:
    """Reason and text are the kubelet's."""
    rejection = NodeAccount(node(**allocatable)).admit(pod("a", container(**requests)))
    assert rejection is not None
    assert rejection.reason == reason
    assert f"Node didn't have enough resource: {text}" in rejection.message


def test_an_extended_resource_unknown_to_the_node_is_not_its_business() -> None:
    """A cluster-level resource does not keep the Pod out."""
    assert NodeAccount(node()).admit(pod("a", container(**{"example.com/licence": "1"}))) is None


def test_affinity_and_host_ports_are_checked() -> None:
    """A node whose labels do not match, or whose port is taken, rejects with the predicate's name."""
    account = NodeAccount(node(labels={"zone": "a"}))
    port = container(ports=[{"containerPort": 80, "hostPort": 80}])
    assert account.admit(pod("a", port)) is None
    taken, elsewhere = account.admit(pod("b", port)), account.admit(pod("c", nodeSelector={"zone": "b"}))
    assert taken is not None
    assert elsewhere is not None
    assert (taken.reason, elsewhere.reason) == ("NodePorts", "NodeAffinity")


@pytest.mark.parametrize(
    ("requirement", "matches"),
    [
        ({"key": "zone", "operator": "In", "values": ["a", "b"]}, True),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "rack", "operator": "NotIn", "values": ["a"]}, True),
        ({"key": "rack", "operator": "Exists"}, False),
        ({"key": "rack", "operator": "DoesNotExist"}, True),
        ({"key": "cores", "operator": "Gt", "values": ["7"]}, True),
        ({"key": "cores", "operator": "Lt", "values": ["7"]}, False),
        ({"key": "zone", "operator": "Gt", "values": ["7"]}, False),
    ],
)
def test_node_selector_operators(requirement: Object, matches: bool) -> None:
    """Each operator as the API defines it; a term without requirements matches nothing."""
    labelled = node(labels={"zone": "a", "cores": "8"})
    selector = {"nodeSelectorTerms": [{}, {"matchExpressions": [requirement]}]}
    assert node_selector_matches(selector, labelled) is matches


@given(st.lists(st.tuples(st.sampled_from(["admit", "release"]), st.integers(0, 7), st.integers(0, 1200)), max_size=40))
def test_a_node_never_holds_more_than_it_has(steps: list[tuple[str, int, int]]) -> None:
    """Whatever is admitted and released in whatever order, sums stay within the node, and an empty node is as new."""
    account = NodeAccount(node(cpu="2", pods="4"))
    for action, number, milli in steps:
        uid = str(number)
        if action == "release":
            account.release(uid)
            continue
        before = sum(pod_requests(p)["cpu"] for p in account.pods.values())
        known, full = uid in account.pods, len(account.pods) == 4
        rejection = account.admit(pod(uid, container(cpu=f"{milli}m")))
        assert (rejection is None) == (known or (not full and (milli == 0 or before + milli <= 2000)))
    for number in range(8):
        account.release(str(number))
    assert account.admit(pod("x", container(cpu="2"))) is None


def claim(**status: Any) -> Object:
    return {"metadata": {"name": "c", "uid": "c-uid"}, "status": status}


def allocation(*devices: str, **more: Any) -> Object:
    results = [{"driver": "d", "pool": "p", "device": name, "request": "r", **more} for name in devices]
    return {"devices": {"results": results}}


def test_a_claim_must_be_owned_reserved_allocated_and_here() -> None:
    """Each missing step has its own refusal; with all of them there is none."""
    waiting, reserved = pod("u"), [{"resource": "pods", "name": "p-u", "uid": "u"}]
    here = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}
    good = claim(allocation={**allocation("x"), "nodeSelector": here}, reservedFor=reserved)

    def refusal(candidate: Object, name: str = "n", must_own: bool = False) -> str:
        return claim_refusal(waiting, candidate, node(name), must_own=must_own) or ""

    assert refusal(good) == ""
    assert "was not created for pod" in refusal(good, must_own=True)
    assert "is not allowed to use" in refusal(claim(allocation=allocation("x")))
    assert "not allocated" in refusal(claim(reservedFor=reserved))
    assert "not available on node other" in refusal(good, name="other")


def test_claim_names_come_from_the_status() -> None:
    """Template claims are named by the status; null means none is needed; a missing entry is a problem."""
    waiting = pod(
        "u",
        resourceClaims=[{"name": "a", "resourceClaimName": "direct"}, {"name": "b", "resourceClaimTemplateName": "t"}],
    )
    assert claim_names(waiting)[1] == "ResourceClaim of b not created yet"
    waiting["status"]["resourceClaimStatuses"] = [{"name": "b", "resourceClaimName": "made"}]
    assert claim_names(waiting) == ([("direct", False), ("made", True)], None)
    waiting["status"]["resourceClaimStatuses"] = [{"name": "b"}]
    assert claim_names(waiting) == ([("direct", False)], None)


def test_admin_access_holds_nothing() -> None:
    """Only results without admin access occupy their device; shares of one device are told apart."""
    assert devices_of(claim(allocation=allocation("x", adminAccess=True))) == []
    assert devices_of(claim(allocation=allocation("x", shareID="s"))) == [DeviceKey("d", "p", "x", "s")]
    assert devices_of(claim()) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 5)), max_size=30))
def test_device_use_forgets_exactly_what_a_pod_held(steps: list[tuple[int, int, int]]) -> None:
    """Conflicts are the other claims of the model; releasing every Pod empties both indices."""
    use, model = DeviceUse(), set[tuple[int, int, int]]()
    for device, claim_number, pod_number in steps:
        key = DeviceKey("d", "p", str(device))
        others = use.take(key, f"c{claim_number}", str(pod_number))
        model.add((device, claim_number, pod_number))
        assert set(others) == {f"c{c}" for d, c, _ in model if d == device and c != claim_number}
        if pod_number % 2:
            use.release(str(pod_number))
            model = {entry for entry in model if entry[2] != pod_number}
    for pod_number in range(6):
        use.release(str(pod_number))
    assert (use.holders, use.by_pod) == ({}, {})
