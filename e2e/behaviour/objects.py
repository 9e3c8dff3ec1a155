"""Create, read, replace and delete: codes, reasons, texts, optimistic locks, finalizers."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.behaviour.subject import Subject, config_map, node, pod


async def test_create_fills_in_the_system_fields(api: Subject) -> None:
    """A created object comes back with 201, uid, creationTimestamp and a resourceVersion; what the client sent of
    them is ignored."""
    body = config_map("a", uid="11111111-1111-1111-1111-111111111111", creationTimestamp="2020-01-01T00:00:00Z")
    answer = await api.post(api.ns("configmaps"), body)
    assert answer.code == 201
    metadata = answer.body["metadata"]
    assert metadata["uid"] != body["metadata"]["uid"]
    assert metadata["creationTimestamp"] > "2021"
    assert answer.revision > 0
    assert answer.body["kind"] == "ConfigMap"
    assert answer.body["apiVersion"] == "v1"


async def test_generate_name_adds_five_letters(api: Subject) -> None:
    """generateName becomes a name with a random end of five letters; the field itself stays."""
    created = await api.made(
        api.ns("configmaps"), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}}
    )
    assert created["metadata"]["generateName"] == "gen-"
    assert created["metadata"]["name"].startswith("gen-")
    assert len(created["metadata"]["name"]) == len("gen-") + 5


async def test_a_taken_name_is_already_exists(api: Subject) -> None:
    """The second create of a name answers 409 AlreadyExists."""
    await api.made(api.ns("configmaps"), config_map("a"))
    answer = await api.post(api.ns("configmaps"), config_map("a"))
    assert (answer.code, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'configmaps "a" already exists'
    assert answer.body["details"] == {"name": "a", "kind": "configmaps"}


@pytest.mark.parametrize(
    ("change", "code", "reason", "text"),
    [
        ({"metadata": {}}, 422, "Invalid", "metadata.name: Required value: name or generateName is required"),
        ({"metadata": {"name": "Bad_Name"}}, 422, "Invalid", "a lowercase RFC 1123 subdomain must consist of"),
        ({"metadata": {"name": "a", "namespace": "other"}}, 400, "BadRequest", "namespace of the provided object"),
        ({"metadata": {"name": "a", "resourceVersion": "5"}}, 500, "", "resourceVersion should not be set"),
        ({"metadata": {"name": "a", "labels": {"a b": "c"}}}, 422, "Invalid", "metadata.labels: Invalid value"),
        ({"kind": "Secret"}, 400, "BadRequest", "cannot be handled as a ConfigMap"),
        ({"apiVersion": "v9"}, 400, "BadRequest", "cannot be handled as a ConfigMap"),
    ],
)
async def test_bad_creates_are_refused(api: Subject, change: dict[str, Any], code: int, reason: str, text: str) -> None:
    """Missing or malformed names, wrong namespaces, kinds and versions are refused with their own code and text."""
    answer = await api.post(api.ns("configmaps"), {**config_map("a"), **change})
    assert (answer.code, answer.reason) == (code, reason)
    assert text in answer.message


async def test_a_body_that_is_not_json_is_a_bad_request(api: Subject) -> None:
    """Malformed JSON answers 400."""
    answer = await api.call("POST", api.ns("configmaps"), b"{nope")
    assert (answer.code, answer.reason) == (400, "BadRequest")


async def test_create_needs_its_namespace(api: Subject) -> None:
    """Creating in a namespace that does not exist answers 404 for the namespace."""
    answer = await api.post("/api/v1/namespaces/nowhere-at-all/configmaps", config_map("a"))
    assert (answer.code, answer.reason) == (404, "NotFound")
    assert answer.message == 'namespaces "nowhere-at-all" not found'


async def test_a_dry_run_changes_nothing(api: Subject) -> None:
    """dryRun=All answers as if created, and nothing is."""
    assert (await api.post(api.ns("configmaps"), config_map("a"), dryRun="All")).code == 201
    assert (await api.get(api.ns("configmaps", "a"))).code == 404


async def test_a_missing_object_is_not_found(api: Subject) -> None:
    """GET, PUT, PATCH and DELETE of a name that is not there answer 404 with the resource and the name."""
    path = api.claims("nope")
    for answer in (
        await api.get(path),
        await api.patch(path, {"metadata": {"labels": {"a": "b"}}}),
        await api.delete(path),
    ):
        assert (answer.code, answer.reason) == (404, "NotFound")
        assert answer.message == 'resourceclaims.resource.k8s.io "nope" not found'
        assert answer.body["details"] == {"name": "nope", "group": "resource.k8s.io", "kind": "resourceclaims"}
    assert (await api.put(api.ns("configmaps", "nope"), config_map("nope"))).code == 404


async def test_unknown_resources_and_verbs(api: Subject) -> None:
    """An unknown resource is 404; POST to an object and PUT to a collection are 405."""
    assert (await api.get(api.ns("things"))).code == 404
    assert (await api.get("/apis/nope.example.com/v1/things")).code == 404
    assert (await api.post(api.ns("configmaps", "a"), config_map("a"))).code == 405
    assert (await api.put(api.ns("configmaps"), config_map("a"))).code == 405


async def test_put_is_guarded_by_the_revision(api: Subject) -> None:
    """A PUT with a stale resourceVersion is a Conflict and changes nothing; with none it goes through."""
    path = api.ns("configmaps", "a")
    created = await api.made(api.ns("configmaps"), config_map("a"))
    stale = created["metadata"]["resourceVersion"]
    assert (await api.put(path, config_map("a", labels={"n": "1"}))).code == 200
    answer = await api.put(path, config_map("a", labels={"n": "2"}, resourceVersion=stale))
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to '
        "the latest version and try again"
    )
    assert (await api.get(path)).body["metadata"]["labels"] == {"n": "1"}


async def test_put_with_a_foreign_uid_is_a_conflict(api: Subject) -> None:
    """A PUT that names another uid answers 409 and tells both."""
    created = await api.made(api.ns("configmaps"), config_map("a"))
    foreign = "11111111-1111-1111-1111-111111111111"
    answer = await api.put(api.ns("configmaps", "a"), config_map("a", uid=foreign))
    assert (answer.code, answer.reason) == (409, "Conflict")
    own = created["metadata"]["uid"]
    assert answer.message.endswith(f"Precondition failed: UID in precondition: {foreign}, UID in object meta: {own}")


async def test_put_under_another_name_is_refused(api: Subject) -> None:
    """The name in the body must be the name in the URL."""
    await api.made(api.ns("configmaps"), config_map("a"))
    answer = await api.put(api.ns("configmaps", "a"), config_map("b"))
    assert (answer.code, answer.message) == (400, "the name of the object (b) does not match the name on the URL (a)")


async def test_a_write_without_change_makes_no_revision(api: Subject) -> None:
    """PUT and PATCH that leave the object as it is answer 200 with the old resourceVersion."""
    path = api.ns("configmaps", "a")
    created = await api.made(api.ns("configmaps"), config_map("a", labels={"k": "v"}))
    revision = int(created["metadata"]["resourceVersion"])
    assert (await api.put(path, config_map("a", labels={"k": "v"}))).revision == revision
    assert (await api.patch(path, {"metadata": {"labels": {"k": "v"}}})).revision == revision
    assert (await api.patch(path, {"metadata": {"labels": {"other": None}}})).revision == revision


async def test_status_and_spec_are_written_apart(api: Subject) -> None:
    """A write to a Node leaves its status alone, a write to its /status leaves the spec alone (labels go through)."""
    name = api.unique("n")
    await api.made("/api/v1/nodes", node(name))
    path = f"/api/v1/nodes/{name}"
    await api.patch(path, {"spec": {"unschedulable": True}, "status": {"capacity": {"cpu": "99"}}})
    body = {
        "metadata": {"labels": {"via": "status"}},
        "spec": {"unschedulable": False, "taints": []},
        "status": {"allocatable": {"cpu": "3"}},
    }
    answer = await api.patch(f"{path}/status", body)
    assert answer.code == 200
    assert answer.body["spec"]["unschedulable"] is True
    assert answer.body["status"]["capacity"]["cpu"] == "4"
    assert answer.body["status"]["allocatable"]["cpu"] == "3"
    assert answer.body["metadata"]["labels"]["via"] == "status"
    await api.delete(path)


async def test_delete_answers_what_was_deleted(api: Subject) -> None:
    """DELETE of a ConfigMap answers a Status with name and uid; a second one 404."""
    created = await api.made(api.ns("configmaps"), config_map("a"))
    answer = await api.delete(api.ns("configmaps", "a"))
    assert (answer.code, answer.body["status"]) == (200, "Success")
    assert answer.body["details"] == {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}
    assert (await api.delete(api.ns("configmaps", "a"))).code == 404


async def test_delete_is_guarded_by_preconditions(api: Subject) -> None:
    """A DELETE with a foreign uid or a stale revision is a Conflict; with the right ones it works."""
    created = (await api.made(api.ns("configmaps"), config_map("a")))["metadata"]
    path = api.ns("configmaps", "a")
    for wrong in ({"uid": "11111111-1111-1111-1111-111111111111"}, {"resourceVersion": "1"}):
        answer = await api.delete(path, {"preconditions": wrong})
        assert (answer.code, answer.reason) == (409, "Conflict")
        assert "in the precondition" in answer.message
    right = {"uid": created["uid"], "resourceVersion": created["resourceVersion"]}
    assert (await api.delete(path, {"preconditions": right})).code == 200


async def test_finalizers_hold_an_object(api: Subject) -> None:
    """A deleted object with a finalizer stays, terminating, takes no new finalizer and goes with the last one."""
    path = api.ns("configmaps", "a")
    await api.made(api.ns("configmaps"), config_map("a", finalizers=["example.com/hold"]))
    answer = await api.delete(path)
    assert answer.code == 200
    assert answer.body["metadata"]["deletionTimestamp"]
    again = await api.post(api.ns("configmaps"), config_map("a"))
    assert (again.code, again.message) == (409, 'object is being deleted: configmaps "a" already exists')
    more = await api.patch(path, {"metadata": {"finalizers": ["example.com/hold", "example.com/new"]}})
    assert (more.code, more.causes) == (422, [("FieldValueForbidden", "metadata.finalizers")])
    assert "no new finalizers can be added if the object is being deleted" in more.message
    assert (await api.patch(path, {"metadata": {"deletionTimestamp": None}})).body["metadata"]["deletionTimestamp"]
    assert (await api.patch(path, {"metadata": {"finalizers": None}})).code == 200
    assert (await api.get(path)).code == 404


async def test_delete_collection_takes_a_selector(api: Subject) -> None:
    """DELETE on a collection removes what the selector matches and answers with the list."""
    await api.made(api.ns("configmaps"), config_map("a", labels={"k": "1"}))
    await api.made(api.ns("configmaps"), config_map("b", labels={"k": "2"}))
    answer = await api.call("DELETE", api.ns("configmaps"), params={"labelSelector": "k=1"})
    assert [item["metadata"]["name"] for item in answer.body["items"]] == ["a"]
    assert (await api.get(api.ns("configmaps", "a"))).code == 404
    assert (await api.get(api.ns("configmaps", "b"))).code == 200


async def test_a_quantity_that_is_none_is_refused(api: Subject) -> None:
    """Nonsense as a quantity answers 400 at create and 422 at patch, with the server's regular expression."""
    bad = {"resources": {"requests": {"cpu": "abc"}}, "name": "c", "image": "i"}
    answer = await api.post(api.ns("pods"), pod("a", containers=[bad]))
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith('Pod in version "v1" cannot be handled as a Pod: quantities must match')
    name = api.unique("n")
    await api.made("/api/v1/nodes", node(name))
    answer = await api.patch(f"/api/v1/nodes/{name}/status", {"status": {"allocatable": {"cpu": "9Zi"}}})
    assert (answer.code, answer.reason) == (422, "Invalid")
    await api.delete(f"/api/v1/nodes/{name}")


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": "x"},
        {"containers": ["x"]},
        {"tolerations": [{"tolerationSeconds": "x"}]},
        {"nodeSelector": {"a": 1}},
        {"resourceClaims": {"a": "b"}},
        {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": True}}}]},
        "x",
    ],
)
async def test_wrong_types_are_refused(api: Subject, spec: Any) -> None:
    """A value of another type than its field answers 400 and names the kind."""
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    answer = await api.post(api.ns("pods"), body)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert 'Pod in version "v1" cannot be handled as a Pod: ' in answer.message


async def test_null_is_absent(api: Subject) -> None:
    """null fields are not there; a null element is an empty one (and as toleration invalid: no key, no Exists)."""
    created = await api.made(api.ns("pods"), pod("a", nodeName=None, nodeSelector=None, schedulingGates=[]))
    assert {"nodeName", "nodeSelector", "schedulingGates"}.isdisjoint(created["spec"])
    answer = await api.post(api.ns("pods"), pod("b", tolerations=[None]))
    assert (answer.code, answer.causes) == (422, [("FieldValueInvalid", "spec.tolerations[0].operator")])


async def test_leases_are_locked_and_may_be_created_by_put(api: Subject) -> None:
    """PUT of a Lease needs a resourceVersion, a stale one is a Conflict, and PUT of a new name creates it."""
    leases = api.group("coordination.k8s.io/v1", "leases")

    def lease(name: str, holder: str, **metadata: str) -> dict[str, Any]:
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        return {**kind, "metadata": {"name": name, **metadata}, "spec": spec}

    created = await api.made(leases, lease("a", "one"))
    assert (await api.put(f"{leases}/a", lease("a", "two"))).code == 422
    revision = created["metadata"]["resourceVersion"]
    assert (await api.put(f"{leases}/a", lease("a", "two", resourceVersion=revision))).code == 200
    assert (await api.put(f"{leases}/a", lease("a", "three", resourceVersion=revision))).code == 409
    assert (await api.put(f"{leases}/b", lease("b", "one"))).code == 201


async def test_a_namespace_takes_its_content_along(api: Subject) -> None:
    """A deleted namespace turns Terminating, refuses new content with 403, and is gone with all it held."""
    name = api.unique("x")
    created = await api.made("/api/v1/namespaces", {"metadata": {"name": name}})
    assert created["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    assert created["status"]["phase"] == "Active"
    held = config_map("held", finalizers=["example.com/hold"])
    await api.made(f"/api/v1/namespaces/{name}/configmaps", held)
    answer = await api.delete(f"/api/v1/namespaces/{name}")
    assert answer.body["status"]["phase"] == "Terminating"
    answer = await api.post(f"/api/v1/namespaces/{name}/configmaps", config_map("late"))
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert "because it is being terminated" in answer.message
    assert answer.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    path = f"/api/v1/namespaces/{name}/configmaps/held"
    await api.eventually(path, lambda got: got.body["metadata"].get("deletionTimestamp"))
    await api.patch(path, {"metadata": {"finalizers": None}})
    await api.eventually(f"/api/v1/namespaces/{name}", lambda got: got.code == 404, 60)
