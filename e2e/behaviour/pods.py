"""Pods: what the server fills in, what may change, Bindings, graceful deletion."""

from __future__ import annotations

import pytest

from e2e.behaviour.subject import STRATEGIC, Json, Subject, binding, node, pod

GATES = [{"name": "example.com/gate"}]


async def test_a_pod_gets_its_defaults(api: Subject) -> None:
    """Priority, tolerations for 300 s, requests from limits, QoS class, phase and scheduler name are filled in."""
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}}
    body = pod("a", containers=[{"name": "c", "image": "registry.example.com/i", "resources": resources}])
    del body["spec"]["schedulerName"]
    created = await api.made(api.ns("pods"), body)
    spec, status = created["spec"], created["status"]
    assert spec["schedulerName"] == "default-scheduler"
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert spec["restartPolicy"] == "Always"
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert [(t["key"], t["effect"], t["tolerationSeconds"]) for t in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    ]
    assert status == {"phase": "Pending", "qosClass": "Guaranteed"}
    assert created["metadata"]["generation"] == 1


async def test_priority_comes_from_the_class(api: Subject) -> None:
    """priorityClassName gives the number; an unknown class is Forbidden."""
    created = await api.made(api.ns("pods"), pod("a", priorityClassName="system-node-critical"))
    assert created["spec"]["priority"] == 2_000_001_000
    answer = await api.post(api.ns("pods"), pod("b", priorityClassName="nope"))
    assert (answer.code, answer.message) == (
        403,
        'pods "b" is forbidden: no PriorityClass with name nope was found',
    )


async def test_a_gated_pod_says_so(api: Subject) -> None:
    """Scheduling gates make the PodScheduled condition at creation; gates can be removed, not added."""
    created = await api.made(api.ns("pods"), pod("a", schedulingGates=GATES))
    (condition,) = created["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
    )
    assert condition["message"] == "Scheduling is blocked due to non-empty scheduling gates"
    path = api.ns("pods", "a")
    added = await api.patch(path, {"spec": {"schedulingGates": [{"name": "example.com/more"}]}}, STRATEGIC)
    assert (added.code, added.causes) == (422, [("FieldValueForbidden", "spec.schedulingGates[0].name")])
    removed = await api.patch(path, {"spec": {"schedulingGates": None}})
    assert removed.code == 200
    assert "schedulingGates" not in removed.body["spec"]


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": []},
        {"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]},
        {"containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "none"}]}}]},
        {"resourceClaims": [{"name": "x"}]},
        {"resourceClaims": [{"name": "x", "resourceClaimName": "a", "resourceClaimTemplateName": "b"}]},
        {"resourceClaims": [{"name": "x", "resourceClaimName": "a"}, {"name": "x", "resourceClaimName": "b"}]},
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]},
        {"schedulingGates": GATES, "nodeName": "n"},
    ],
)
async def test_invalid_pods_are_refused(api: Subject, spec: Json) -> None:
    """No container, names twice, claim entries without one source or without entry, gates with a node: 422."""
    answer = await api.post(api.ns("pods"), pod("a", **spec))
    assert (answer.code, answer.reason) == (422, "Invalid")


def with_resources(requests: Json, limits: Json) -> Json:
    resources = {"requests": requests, "limits": limits}
    return pod("a", containers=[{"name": "c", "image": "registry.example.com/i", "resources": resources}])


@pytest.mark.parametrize(
    ("requests", "limits", "field"),
    [
        ({"cpu": "-1"}, {}, "requests[cpu]"),
        ({"cpu": "2"}, {"cpu": "1"}, "requests"),
        ({"memory": "1Gi"}, {"memory": "1e9"}, "requests"),
        ({"example.com/gpu": "1"}, {}, "limits"),
    ],
)
async def test_amounts_are_checked(api: Subject, requests: Json, limits: Json, field: str) -> None:
    """Negative amounts, requests above limits and extended resources without limit answer 422."""
    answer = await api.post(api.ns("pods"), with_resources(requests, limits))
    assert (answer.code, answer.causes[0][1]) == (422, f"spec.containers[0].resources.{field}")


async def test_amounts_are_stored_in_canonical_form(api: Subject) -> None:
    """0.5 becomes 500m, 1024Mi becomes 1Gi, a JSON number becomes a string."""
    body = with_resources({"cpu": "0.5", "memory": "1024Mi"}, {"cpu": 2, "memory": "1.5Gi"})
    resources = (await api.made(api.ns("pods"), body))["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "500m", "memory": "1Gi"}
    assert resources["limits"] == {"cpu": "2", "memory": "1536Mi"}


async def test_the_spec_of_a_pod_is_nearly_fixed(api: Subject) -> None:
    """schedulerName and nodeName can't be patched."""
    await api.made(api.ns("pods"), pod("a"))
    for change in ({"schedulerName": "other"}, {"nodeName": "n1"}):
        answer = await api.patch(api.ns("pods", "a"), {"spec": change})
        assert (answer.code, answer.causes) == (422, [("FieldValueForbidden", "spec")])
        assert "pod updates may not change fields other than" in answer.message


async def test_a_binding_sets_the_node_in_one_write(api: Subject) -> None:
    """POST binding answers 201 Success and sets node, condition, labels, annotations and topology labels, and clears
    nominatedNodeName, in one revision."""
    name = api.unique("n")
    zone = {"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1", "other": "x"}
    await api.made("/api/v1/nodes", node(name, labels=zone))
    created = await api.made(api.ns("pods"), pod("a"))
    await api.patch(api.ns("pods", "a", "status"), {"status": {"nominatedNodeName": "elsewhere"}})
    body = binding("a", name, uid=created["metadata"]["uid"], labels={"l": "1"}, annotations={"n": "2"})
    async with api.watch(api.ns("pods"), resourceVersion=created["metadata"]["resourceVersion"]) as stream:
        answer = await api.post(api.ns("pods", "a", "binding"), body)
        assert (answer.code, answer.body["status"]) == (201, "Success")
        assert (await stream.next())[1]["status"]["nominatedNodeName"] == "elsewhere"
        _, bound = await stream.next()
    assert bound["spec"]["nodeName"] == name
    assert bound["metadata"]["labels"] == {
        "l": "1",
        "topology.kubernetes.io/zone": "z1",
        "topology.kubernetes.io/region": "r1",
    }
    assert bound["metadata"]["annotations"] == {"n": "2"}
    assert "nominatedNodeName" not in bound["status"]
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert "reason" not in condition
    stored = await api.get(api.ns("pods", "a"))
    assert stored.body["metadata"]["resourceVersion"] == bound["metadata"]["resourceVersion"]
    await api.delete(f"/api/v1/nodes/{name}")


async def test_a_binding_needs_no_node(api: Subject) -> None:
    """The server does not check that the node exists; bindings go through the collection as well."""
    await api.made(api.ns("pods"), pod("a"))
    assert (await api.post(api.ns("bindings"), binding("a", "no-such-node"))).code == 201
    assert (await api.get(api.ns("pods", "a"))).body["spec"]["nodeName"] == "no-such-node"


async def test_a_binding_that_comes_too_late_is_a_conflict(api: Subject) -> None:
    """Already assigned, gated, foreign uid, stale revision: 409, each with its text; an absent Pod: 404."""
    await api.made(api.ns("pods"), pod("a"))
    path = api.ns("pods", "a", "binding")
    foreign = await api.post(path, binding("a", "n1", uid="11111111-1111-1111-1111-111111111111"))
    assert (foreign.code, foreign.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition" in foreign.message
    stale = await api.post(path, binding("a", "n1", resourceVersion="1"))
    assert (stale.code, "Precondition failed: ResourceVersion in precondition: 1" in stale.message) == (409, True)
    assert (await api.post(path, binding("a", "n1"))).code == 201
    twice = await api.post(path, binding("a", "n2"))
    assert (twice.code, twice.message) == (
        409,
        'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"',
    )
    await api.made(api.ns("pods"), pod("g", schedulingGates=GATES))
    gated = await api.post(api.ns("pods", "g", "binding"), binding("g", "n1"))
    assert (gated.code, gated.message) == (
        409,
        'Operation cannot be fulfilled on pods/binding "g": pod g has non-empty .spec.schedulingGates',
    )
    absent = await api.post(api.ns("pods", "z", "binding"), binding("z", "n1"))
    assert (absent.code, absent.reason) == (404, "NotFound")


async def test_malformed_bindings(api: Subject) -> None:
    """Another name in the body is 400; a bad or missing target is a bare 500 with the validation's text."""
    await api.made(api.ns("pods"), pod("a"))
    path = api.ns("pods", "a", "binding")
    other = await api.post(path, binding("b", "n1"))
    assert (other.code, other.message) == (400, "name in URL does not match name in Binding object")
    for target, text in (
        ({"kind": "Node"}, "target.name: Required value"),
        ({"kind": "Pod", "name": "n1"}, 'target.kind: Unsupported value: "Pod"'),
        ({"kind": "Node", "name": "Bad_"}, 'target.name: Invalid value: "Bad_"'),
    ):
        answer = await api.post(path, {**binding("a", "n1"), "target": target})
        assert (answer.code, answer.reason) == (500, "")
        assert answer.message.startswith(text)


async def test_a_bound_pod_goes_gracefully(api: Subject) -> None:
    """A bound Pod gets deletionTimestamp and grace, can't be bound, and goes with grace 0; one without node goes at
    once."""
    await api.made(api.ns("pods"), pod("free"))
    assert (await api.delete(api.ns("pods", "free"))).code == 200
    assert (await api.get(api.ns("pods", "free"))).code == 404
    await api.made(api.ns("pods"), pod("a", terminationGracePeriodSeconds=7))
    await api.post(api.ns("pods", "a", "binding"), binding("a", "n1"))
    answer = await api.delete(api.ns("pods", "a"))
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 7
    assert answer.body["metadata"]["deletionTimestamp"]
    late = await api.post(api.ns("pods", "a", "binding"), binding("a", "n1"))
    assert (late.code, late.message) == (
        409,
        'Operation cannot be fulfilled on pods/binding "a": pod a is being deleted, cannot be assigned to a host',
    )
    assert (await api.delete(api.ns("pods", "a"), {"gracePeriodSeconds": 0})).code == 200
    assert (await api.get(api.ns("pods", "a"))).code == 404


async def test_a_pod_status_keeps_what_a_put_omits(api: Subject) -> None:
    """PUT status without qosClass and resourceClaimStatuses keeps them; a name that is no entry is refused."""
    entries = [{"name": "x", "resourceClaimTemplateName": "absent"}]
    created = await api.made(api.ns("pods"), pod("a", resourceClaims=entries))
    path = api.ns("pods", "a", "status")
    statuses = [{"name": "x", "resourceClaimName": "a-x-12345"}]
    assert (await api.patch(path, {"status": {"resourceClaimStatuses": statuses}}, STRATEGIC)).code == 200
    answer = await api.put(path, {**created, "metadata": {"name": "a"}, "status": {"phase": "Running"}})
    assert answer.body["status"]["phase"] == "Running"
    assert answer.body["status"]["qosClass"] == "BestEffort"
    assert answer.body["status"]["resourceClaimStatuses"] == statuses
    unknown = [{"name": "y", "resourceClaimName": "z"}]
    answer = await api.patch(path, {"status": {"resourceClaimStatuses": unknown}}, STRATEGIC)
    assert (answer.code, answer.causes[0][1]) == (422, "status.resourceClaimStatuses[0].name")


async def test_an_assigned_pod_takes_no_nomination(api: Subject) -> None:
    """nominatedNodeName on a bound Pod answers 422."""
    await api.made(api.ns("pods"), pod("a"))
    await api.post(api.ns("pods", "a", "binding"), binding("a", "n1"))
    answer = await api.patch(api.ns("pods", "a", "status"), {"status": {"nominatedNodeName": "n2"}})
    assert (answer.code, answer.causes) == (422, [("FieldValueForbidden", "status.nominatedNodeName")])


async def test_an_eviction_deletes(api: Subject) -> None:
    """POST eviction answers 201 and deletes the Pod; a second one 404."""
    await api.made(api.ns("pods"), pod("a"))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": api.namespace}}
    assert (await api.post(api.ns("pods", "a", "eviction"), body)).code == 201
    assert (await api.post(api.ns("pods", "a", "eviction"), body)).code == 404
