"""ResourceClaims and slices: defaults, immutability, reservations, allocation results, limits."""

from __future__ import annotations

import asyncio

import pytest

from e2e.behaviour.subject import (
    RESOURCE,
    STRATEGIC,
    Json,
    Subject,
    allocation,
    claim,
    consumer,
    pod,
    request,
)

PROTECTION = "resource.kubernetes.io/delete-protection"


async def allocated(api: Subject, name: str, *pods: str) -> list[Json]:
    """Makes a claim, allocates it and reserves it for fresh Pods of these names; their reservedFor entries."""
    await api.made(api.claims(), claim(name))
    uses = [{"name": "gpu", "resourceClaimName": name}]
    entries = [consumer(await api.made(api.ns("pods"), pod(pod_name, resourceClaims=uses))) for pod_name in pods]
    body = {"status": {"allocation": allocation(), "reservedFor": entries}}
    answer = await api.patch(api.claims(name, "status"), body)
    assert answer.code == 200, answer.body
    return entries


async def test_a_claim_gets_its_defaults(api: Subject) -> None:
    """ExactCount, count 1 and the operator Equal are filled in; a status sent along is dropped."""
    wanted = request("a", tolerations=[{"key": "k", "value": "v"}])
    body = {**claim("a", wanted, request("b", allocationMode="All")), "status": {"allocation": allocation()}}
    created = await api.made(api.claims(), body)
    first, second = (entry["exactly"] for entry in created["spec"]["devices"]["requests"])
    assert (first["allocationMode"], first["count"]) == ("ExactCount", 1)
    assert first["tolerations"] == [{"key": "k", "operator": "Equal", "value": "v"}]
    assert second["allocationMode"] == "All"
    assert "count" not in second
    assert created["status"] == {}


@pytest.mark.parametrize(
    ("requests", "cause"),
    [
        ([{"name": "r"}], ("FieldValueRequired", "spec.devices.requests[0]")),
        ([request("R_")], ("FieldValueInvalid", "spec.devices.requests[0].name")),
        ([request(), request()], ("FieldValueDuplicate", "spec.devices.requests[1]")),
        ([request(count=-1)], ("FieldValueInvalid", "spec.devices.requests[0].exactly.count")),
        ([request(allocationMode="All", count=2)], ("FieldValueInvalid", "spec.devices.requests[0].exactly.count")),
        (
            [request(allocationMode="Some")],
            ("FieldValueNotSupported", "spec.devices.requests[0].exactly.allocationMode"),
        ),
        (
            [{"name": "r", "exactly": {"count": 1}}],
            ("FieldValueRequired", "spec.devices.requests[0].exactly.deviceClassName"),
        ),
        ([request(f"r{index}") for index in range(33)], ("FieldValueTooMany", "spec.devices.requests")),
    ],
)
async def test_invalid_claims_are_refused(api: Subject, requests: list[Json], cause: tuple[str, str]) -> None:
    """Each rule of the claim's spec answers 422 with its field."""
    answer = await api.post(api.claims(), claim("a", *requests))
    assert (answer.code, answer.causes) == (422, [cause])
    assert answer.message.startswith('ResourceClaim.resource.k8s.io "a" is invalid: ')


async def test_a_constraint_must_name_a_request(api: Subject) -> None:
    """A constraint over an unknown request answers 422."""
    body = claim("a")
    body["spec"]["devices"]["constraints"] = [{"requests": ["zz"], "matchAttribute": "example.com/x"}]
    answer = await api.post(api.claims(), body)
    assert answer.causes == [("FieldValueInvalid", "spec.devices.constraints[0].requests[0]")]


async def test_admin_access_needs_a_label(api: Subject) -> None:
    """adminAccess is refused in a namespace without the label, in claims and in templates."""
    body = claim("a", request(adminAccess=True))
    template = {**body, "kind": "ResourceClaimTemplate", "spec": {"spec": body["spec"]}}
    templates = f"{RESOURCE}/namespaces/{api.namespace}/resourceclaimtemplates"
    cause = ("FieldValueForbidden", "spec.devices.requests[0].adminAccess")
    for path, obj in ((api.claims(), body), (templates, template)):
        answer = await api.post(path, obj)
        assert (answer.code, answer.causes) == (422, [cause])
    label = {"resource.kubernetes.io/admin-access": "true"}
    await api.patch(f"/api/v1/namespaces/{api.namespace}", {"metadata": {"labels": label}})
    for _ in range(100):  # the real server reads the label from a cache
        answer = await api.post(api.claims(), body)
        if answer.code == 201:
            break
        await asyncio.sleep(0.05)
    assert answer.code == 201


async def test_selectors_must_compile(api: Subject) -> None:
    """A selector that is no CEL, or no yes-or-no question, answers 422 with its place; the same in a class."""
    name = api.unique("c")
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}}
    for text in ("nope(", "device.nope", "1 + 1", "'a' == 1"):
        selectors = [{"cel": {"expression": "device.driver == 'x'"}}, {"cel": {"expression": text}}]
        answer = await api.post(api.claims(), claim("a", request(selectors=selectors)))
        path = "spec.devices.requests[0].exactly.selectors[1].cel.expression"
        assert (answer.code, answer.causes) == (422, [("FieldValueInvalid", path)])
        answer = await api.post(f"{RESOURCE}/deviceclasses", {**kind, "spec": {"selectors": selectors}})
        assert (answer.code, answer.causes) == (422, [("FieldValueInvalid", "spec.selectors[1].cel.expression")])
    good = [{"cel": {"expression": "device.attributes['a.example.com'].model == 'x'"}}]
    assert (await api.post(f"{RESOURCE}/deviceclasses", {**kind, "spec": {"selectors": good}})).code == 201
    await api.delete(f"{RESOURCE}/deviceclasses/{name}")


async def test_the_spec_of_a_claim_is_immutable(api: Subject) -> None:
    """No part of the spec can be changed."""
    await api.made(api.claims(), claim("a"))
    answer = await api.patch(api.claims("a"), {"spec": {"devices": {"requests": [request(count=2)]}}})
    assert (answer.code, answer.causes) == (422, [("FieldValueInvalid", "spec")])
    assert "field is immutable" in answer.message


async def test_finalizer_then_status_as_a_scheduler_writes_them(api: Subject) -> None:
    """A finalizer with uid and revision, then allocation and reservation in one status write; a status write leaves
    metadata and spec alone."""
    created = await api.made(api.claims(), claim("a"))
    entry = consumer(await api.made(api.ns("pods"), pod("p")))
    keys = {"uid": created["metadata"]["uid"], "resourceVersion": created["metadata"]["resourceVersion"]}
    first = await api.patch(api.claims("a"), {"metadata": {**keys, "finalizers": [PROTECTION]}})
    assert first.code == 200
    keys["resourceVersion"] = first.body["metadata"]["resourceVersion"]
    body = {
        "metadata": {**keys, "labels": {"x": "y"}, "finalizers": ["example.com/z"]},
        "spec": {"devices": {"requests": []}},
        "status": {"allocation": allocation(), "reservedFor": [entry]},
    }
    second = await api.patch(api.claims("a", "status"), body)
    assert second.code == 200
    assert second.body["metadata"]["finalizers"] == [PROTECTION]
    assert "labels" not in second.body["metadata"]
    assert second.body["spec"] == created["spec"]
    assert second.body["status"] == {"allocation": allocation(), "reservedFor": [entry]}
    assert second.revision > first.revision
    assert (await api.patch(api.claims("a", "status"), {**body, "spec": {}})).code == 409


async def test_an_allocation_is_immutable_while_set(api: Subject) -> None:
    """A set allocation can't be changed, not even by a timestamp; the same one again is no write."""
    await allocated(api, "a", "p")
    path = api.claims("a", "status")
    before = await api.get(api.claims("a"))
    for change in (allocation("gpu-1"), {"allocationTimestamp": "2026-01-01T00:00:00Z"}):
        answer = await api.patch(path, {"status": {"allocation": change}})
        assert (answer.code, answer.causes) == (422, [("FieldValueInvalid", "status.allocation")])
        assert "field cannot be modified once set" in answer.message
    same = await api.patch(path, {"status": {"allocation": allocation()}})
    assert (same.code, same.revision) == (200, before.revision)


async def test_unset_then_set_again(api: Subject) -> None:
    """An allocation can be cleared together with its reservations, then another one set."""
    await allocated(api, "a", "p")
    path = api.claims("a", "status")
    answer = await api.patch(path, {"status": {"allocation": None}})
    assert (answer.code, answer.causes) == (422, [("FieldValueForbidden", "status.reservedFor")])
    assert "may not be specified when `allocated` is not set" in answer.message
    cleared = await api.patch(path, {"status": {"allocation": None, "reservedFor": None}})
    assert (cleared.code, cleared.body["status"]) == (200, {})
    assert (await api.patch(path, {"status": {"allocation": allocation("gpu-1")}})).code == 200


async def test_a_reservation_needs_an_allocation(api: Subject) -> None:
    """reservedFor without allocation answers 422."""
    await api.made(api.claims(), claim("a"))
    entry = {"resource": "pods", "name": "p", "uid": "u"}
    answer = await api.patch(api.claims("a", "status"), {"status": {"reservedFor": [entry]}})
    assert (answer.code, answer.causes) == (422, [("FieldValueForbidden", "status.reservedFor")])


async def test_reservations_merge_by_uid(api: Subject) -> None:
    """Strategic merge adds to reservedFor by uid and takes away with $patch: delete."""
    first, second = await allocated(api, "a", "p1", "p2")
    path = api.claims("a", "status")
    gone = await api.patch(path, {"status": {"reservedFor": [{"$patch": "delete", "uid": first["uid"]}]}}, STRATEGIC)
    assert gone.body["status"]["reservedFor"] == [second]
    back = await api.patch(path, {"status": {"reservedFor": [first]}}, STRATEGIC)
    assert back.body["status"]["reservedFor"] == [first, second]


async def test_reservations_are_counted_and_complete(api: Subject) -> None:
    """256 reservations are accepted, 257 are not; each names resource, name and a uid of its own."""
    await allocated(api, "a", "p")
    path = api.claims("a", "status")
    many = [{"resource": "pods", "name": f"p{index}", "uid": f"u{index}"} for index in range(257)]
    answer = await api.patch(path, {"status": {"reservedFor": many}})
    assert (answer.code, answer.causes) == (422, [("FieldValueTooMany", "status.reservedFor")])
    assert "Too many: 257: must have at most 256 items" in answer.message
    twice = await api.patch(path, {"status": {"reservedFor": [many[0], many[0]]}})
    assert twice.causes == [("FieldValueDuplicate", "status.reservedFor[1]")]
    half = await api.patch(path, {"status": {"reservedFor": [{"uid": "x"}]}})
    assert half.causes == [
        ("FieldValueRequired", "status.reservedFor[0].resource"),
        ("FieldValueRequired", "status.reservedFor[0].name"),
    ]
    assert (await api.patch(path, {"status": {"reservedFor": many[:256]}})).code == 200


async def test_a_claim_that_goes_takes_no_new_consumer(api: Subject) -> None:
    """While deletionTimestamp is set, a new reservation answers 422; the old ones stay."""
    (entry,) = await allocated(api, "a", "p")
    await api.patch(api.claims("a"), {"metadata": {"finalizers": [PROTECTION]}})
    assert (await api.delete(api.claims("a"))).body["metadata"]["deletionTimestamp"]
    other = {"resource": "pods", "name": "q", "uid": "u"}
    answer = await api.patch(api.claims("a", "status"), {"status": {"reservedFor": [entry, other]}})
    assert (answer.code, answer.causes) == (422, [("FieldValueForbidden", "status.reservedFor")])
    assert "new entries may not be added while" in answer.message
    assert (await api.get(api.claims("a"))).body["status"]["reservedFor"] == [entry]


@pytest.mark.parametrize(
    ("result", "field"),
    [
        ({"request": "zz"}, "request"),
        ({"device": ""}, "device"),
        ({"driver": ""}, "driver"),
        ({"pool": ""}, "pool"),
        ({"shareID": "x"}, "shareID"),
    ],
)
async def test_allocation_results_are_validated(api: Subject, result: Json, field: str) -> None:
    """Results name a request of the claim, a device, a driver and a pool; a share id is a UUID."""
    await api.made(api.claims(), claim("a"))
    body = allocation()
    body["devices"]["results"][0] |= result
    answer = await api.patch(api.claims("a", "status"), {"status": {"allocation": body}})
    assert answer.code == 422
    assert answer.causes[0][1] == f"status.allocation.devices.results[0].{field}"


async def test_an_allocation_has_at_most_32_results(api: Subject) -> None:
    """33 results are too many, 32 are accepted."""
    await api.made(api.claims(), claim("a"))
    path = api.claims("a", "status")
    names = [f"gpu-{index}" for index in range(33)]
    answer = await api.patch(path, {"status": {"allocation": allocation(*names)}})
    assert answer.causes == [("FieldValueTooMany", "status.allocation.devices.results")]
    assert (await api.patch(path, {"status": {"allocation": allocation(*names[:32])}})).code == 200


async def test_device_statuses_follow_the_allocation(api: Subject) -> None:
    """status.devices may only name allocated devices, and its entries go with the deallocation."""
    await allocated(api, "a", "p")
    path = api.claims("a", "status")
    device = {"driver": "gpu.example.com", "pool": "pool", "device": "gpu-0"}
    stranger = await api.patch(path, {"status": {"devices": [{**device, "device": "gpu-9"}]}})
    assert (stranger.code, stranger.causes) == (422, [("FieldValueInvalid", "status.devices[0]")])
    (stored,) = (await api.patch(path, {"status": {"devices": [device]}})).body["status"]["devices"]
    assert {key: value for key, value in stored.items() if value is not None} == device
    cleared = await api.patch(path, {"status": {"allocation": None, "reservedFor": None}})
    assert (cleared.code, cleared.body["status"]) == (200, {})


async def test_an_allocation_is_stored_as_written(api: Subject) -> None:
    """All that a scheduler puts into a result and an allocation comes back; quantities in canonical form."""
    await api.made(api.claims(), claim("a"))
    body = allocation()
    body["devices"]["results"][0] |= {
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "bindingConditions": ["example.com/ready"],
        "bindingFailureConditions": ["example.com/failed"],
        "consumedCapacity": {"memory": "1024Mi"},
        "shareID": "11111111-1111-4111-8111-111111111111",
    }
    opaque = {"driver": "gpu.example.com", "parameters": {"x": 1}}
    body["devices"]["config"] = [{"source": "FromClass", "requests": ["r"], "opaque": opaque}]
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    body["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    body["allocationTimestamp"] = "2026-01-01T00:00:00Z"
    answer = await api.patch(api.claims("a", "status"), {"status": {"allocation": body}})
    body["devices"]["results"][0]["consumedCapacity"] = {"memory": "1Gi"}
    assert answer.body["status"]["allocation"] == body


async def test_two_claims_may_hold_one_device(api: Subject) -> None:
    """The server does not check that a device is given out once."""
    await allocated(api, "a", "p1")
    await allocated(api, "b", "p2")
    results = [
        (await api.get(api.claims(name))).body["status"]["allocation"]["devices"]["results"] for name in ("a", "b")
    ]
    assert results[0] == results[1]


def resource_slice(name: str, node_name: str, *devices: Json, **spec: object) -> Json:
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    body = {"driver": "gpu.example.com", "nodeName": node_name, "pool": pool, "devices": list(devices), **spec}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    return {**kind, "metadata": {"name": name}, "spec": body}


async def test_slices_keep_their_place(api: Subject) -> None:
    """Driver, node and pool name of a slice are immutable; the pool's generation is not. Taints get a time."""
    name = api.unique("s")
    device = {"name": "gpu-0", "taints": [{"key": "k", "effect": "NoSchedule"}]}
    created = await api.made(f"{RESOURCE}/resourceslices", resource_slice(name, api.unique("n"), device))
    assert created["spec"]["devices"][0]["taints"][0]["timeAdded"]
    path = f"{RESOURCE}/resourceslices/{name}"
    changed = await api.patch(path, {"spec": {"pool": {"generation": 2}}})
    assert (changed.code, changed.body["metadata"]["generation"]) == (200, 2)
    for change, field in (
        ({"driver": "other.example.com"}, "spec.driver"),
        ({"nodeName": "elsewhere"}, "spec.nodeName"),
        ({"pool": {"name": "other"}}, "spec.pool.name"),
    ):
        answer = await api.patch(path, {"spec": change})
        assert (answer.code, answer.causes) == (422, [("FieldValueInvalid", field)])
    await api.delete(path)


async def test_invalid_slices_are_refused(api: Subject) -> None:
    """Too many devices (128, 64 with taints), a name twice, not one place, no count: 422; a bad quantity: 400."""
    path, node_name = f"{RESOURCE}/resourceslices", api.unique("n")
    plain = [{"name": f"gpu-{index}"} for index in range(129)]
    tainted = [{**device, "taints": [{"key": "k", "effect": "NoSchedule"}]} for device in plain[:65]]
    pool = {"name": "p", "generation": 1}
    for body, cause in (
        (resource_slice("s", node_name, *plain), ("FieldValueTooMany", "spec.devices")),
        (resource_slice("s", node_name, *tainted), ("FieldValueTooMany", "spec.devices")),
        (resource_slice("s", node_name, plain[0], plain[0]), ("FieldValueDuplicate", "spec.devices[1]")),
        (resource_slice("s", node_name, allNodes=True), ("FieldValueInvalid", "spec")),
        (resource_slice("s", node_name, nodeName=None), ("FieldValueRequired", "spec")),
        (resource_slice("s", node_name, pool=pool), ("FieldValueInvalid", "spec.pool.resourceSliceCount")),
    ):
        answer = await api.post(path, body)
        assert (answer.code, answer.causes) == (422, [cause])
    broken = {"name": "gpu-0", "capacity": {"memory": {"value": "1Zi"}}}
    assert (await api.post(path, resource_slice("s", node_name, broken))).code == 400
