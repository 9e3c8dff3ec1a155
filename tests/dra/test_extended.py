"""Extended resources served by devices: which class, which requests, which container uses what."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api.core import Pod
from scheduler.api.kinds import DEVICE_CLASS, POD, RESOURCE_CLAIM, convert
from scheduler.dra.classes import ClassStore
from scheduler.dra.extended import (
    requested_resources,
    requests_and_mappings,
    special_claim,
    special_owner,
    with_requests,
)

GPU, NIC = "example.com/gpu", "example.com/nic"
SERVED = {GPU: "gpus", NIC: "nics"}


def container(name: str, requests: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A container with requests."""
    return {"name": name, "resources": {"requests": requests}, **more}


def pod(containers: list[dict[str, Any]], init: list[dict[str, Any]] | None = None) -> Pod:
    """A Pod of these containers."""
    spec = {"containers": containers, "initContainers": init or []}
    found: Pod = convert(POD, {"metadata": {"name": "p", "namespace": "ns", "uid": "p-uid"}, "spec": spec})
    return found


def asked(pod: Pod, served: dict[str, str] = SERVED) -> dict[str, tuple[str, int]]:
    """Request name → (class, count)."""
    requests, _ = requests_and_mappings(pod, served)
    assert [r.name for r in requests] == sorted(r.name for r in requests)
    return {r.name: (r.exactly.deviceClassName, r.exactly.count) for r in requests if r.exactly is not None}


def used(pod: Pod, served: dict[str, str] = SERVED) -> list[tuple[str, str, str]]:
    """(container, resource, request) of each mapping, in order."""
    return [(m.containerName, m.resourceName, m.requestName) for m in requests_and_mappings(pod, served)[1]]


def test_b74_names_count_containers_and_the_places_of_resources() -> None:
    """B74: request names number the containers and the sorted names of their requests, mappings use the same names."""
    made = pod([container("a", {GPU: 2, "cpu": 1}), container("b", {NIC: "1", GPU: "1"})], [container("i", {"cpu": 1})])
    assert asked(made) == {
        "container-1-request-1": ("gpus", 2),
        "container-2-request-0": ("gpus", 1),
        "container-2-request-1": ("nics", 1),
    }
    assert used(made) == [
        ("a", GPU, "container-1-request-1"),
        ("b", GPU, "container-2-request-0"),
        ("b", NIC, "container-2-request-1"),
    ]


def test_init_containers_use_the_devices_of_what_runs_later() -> None:
    """An init container reuses devices of containers after it; of what is missing only the largest is requested."""
    made = pod(
        [container("a", {GPU: 1}), container("b", {GPU: 2})],
        [container("small", {GPU: 1}), container("big", {GPU: 5}), container("bigger", {GPU: 6})],
    )
    assert asked(made) == {
        "container-2-request-0": ("gpus", 3),
        "container-3-request-0": ("gpus", 1),
        "container-4-request-0": ("gpus", 2),
    }
    assert used(made) == [
        ("a", GPU, "container-3-request-0"),
        ("b", GPU, "container-4-request-0"),
        ("small", GPU, "container-3-request-0"),
        ("big", GPU, "container-3-request-0"),
        ("big", GPU, "container-4-request-0"),
        ("big", GPU, "container-2-request-0"),
        ("bigger", GPU, "container-3-request-0"),
        ("bigger", GPU, "container-4-request-0"),
        ("bigger", GPU, "container-2-request-0"),
    ]


def test_devices_of_earlier_sidecars_are_not_reused() -> None:
    """A sidecar that is running keeps its devices; one that starts later lends them."""
    sidecar = {"restartPolicy": "Always"}
    init = [container("before", {GPU: 1}, **sidecar), container("i", {GPU: 2}), container("after", {GPU: 1}, **sidecar)]
    made = pod([container("a", {"cpu": 1})], init)
    assert asked(made) == {
        "container-0-request-0": ("gpus", 1),
        "container-1-request-0": ("gpus", 1),
        "container-2-request-0": ("gpus", 1),
    }
    assert [request for name, _, request in used(made) if name == "i"] == [
        "container-2-request-0",
        "container-1-request-0",
    ]


def test_zero_and_fractions_ask_for_nothing() -> None:
    """A quantity of zero, or one that is no whole number of 64 bits, makes no request."""
    made = pod([container("a", {GPU: 0}), container("b", {GPU: "1500m"}), container("c", {GPU: "10E"})])
    assert asked(made) == {}
    assert used(made) == []


def test_only_what_devices_serve_is_requested() -> None:
    """A resource that the node's device plugin serves leaves no trace in the claim."""
    made = pod([container("a", {GPU: 1, NIC: 1})])
    assert asked(made, {NIC: "nics"}) == {"container-0-request-1": ("nics", 1)}


def classes(*specs: tuple[str, str, str]) -> ClassStore:
    """Classes by (name, explicit resource or "", creation time)."""
    store = ClassStore()
    for name, resource, created in specs:
        spec = {"extendedResourceName": resource} if resource else {}
        data = {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec}
        store.apply(None, convert(DEVICE_CLASS, data))
    return store


def test_b77_explicit_and_implicit_names_find_the_same_class() -> None:
    """B77: both forms of the name lead to the class; names that are no extended resources do not count."""
    store = classes(("gpus", GPU, "2026-01-01T00:00:00Z"))
    implicit = "deviceclass.resource.kubernetes.io/gpus"
    assert requested_resources({GPU: 1}, store) == {GPU: "gpus"}
    assert requested_resources({implicit: 1, "cpu": 3, "example.com/other": 2}, store) == {
        implicit: "gpus",
        "example.com/other": None,
    }
    assert requested_resources({"example.com/other": 2, GPU: 0}, store) == {}


def test_a_clash_goes_to_the_newest_class_and_the_loser_takes_over() -> None:
    """Of two classes for a resource the newer wins; when it goes the other serves (25 no. 10)."""
    store = classes(("old", GPU, "2026-01-01T00:00:00Z"), ("new", GPU, "2026-02-01T00:00:00Z"))
    assert requested_resources({GPU: 1}, store) == {GPU: "new"}
    store.apply(store.get("new"), None)
    assert requested_resources({GPU: 1}, store) == {GPU: "old"}


def test_b75_the_claim_in_memory_has_no_name_an_object_could_have() -> None:
    """B75: the claim belongs to its Pod, says what it is, and its name is only the beginning of one."""
    made = pod([container("a", {GPU: 1})])
    requests, _ = requests_and_mappings(made, SERVED)
    claim = with_requests(special_claim(made, "temporary"), requests)
    assert claim.metadata.name == "p-extended-resources-"
    assert claim.uid == "temporary"
    assert special_owner(claim) == "p-uid"
    assert claim.spec.devices.requests == requests
    assert special_owner(convert(RESOURCE_CLAIM, {"metadata": {"name": "ordinary"}})) == ""


AMOUNTS = st.dictionaries(st.sampled_from([GPU, NIC, "cpu"]), st.integers(0, 4), max_size=3)
KINDS = st.lists(st.tuples(AMOUNTS, st.booleans()), max_size=4)


@given(st.lists(AMOUNTS, min_size=1, max_size=3), KINDS)
def test_every_container_gets_what_it_asks_for(
    plain: list[dict[str, int]], init: list[tuple[dict[str, int], bool]]
) -> None:
    """Mappings name existing requests of the right class, and each container's add up to at least what it asks for."""
    made = pod(
        [container(f"c{i}", amounts) for i, amounts in enumerate(plain)],
        [container(f"i{i}", amounts, restartPolicy="Always" if s else "") for i, (amounts, s) in enumerate(init)],
    )
    counts = asked(made)
    for item in (*made.spec.initContainers, *made.spec.containers):
        for resource, class_name in SERVED.items():
            mapped = [
                counts[request] for name, mapped, request in used(made) if (name, mapped) == (item.name, resource)
            ]
            assert all(served == class_name for served, _ in mapped)
            wanted = int((item.resources.requests or {}).get(resource, 0))
            assert sum(count for _, count in mapped) >= wanted
            lasting = item in made.spec.containers or item.restartPolicy == "Always"
            assert not lasting or sum(count for _, count in mapped) == wanted
    assert msgspec.to_builtins(requests_and_mappings(made, SERVED)) == msgspec.to_builtins(
        requests_and_mappings(made, dict(reversed(SERVED.items())))
    )
