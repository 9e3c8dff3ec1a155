"""PATCH: preconditions in the body, the three formats, what merges and what replaces."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.behaviour.subject import JSON_PATCH, STRATEGIC, Subject, config_map, node, pod

FOREIGN = "11111111-1111-1111-1111-111111111111"


async def test_a_patch_with_a_stale_revision_is_a_conflict(api: Subject) -> None:
    """resourceVersion in a patch body is a precondition: stale answers 409 and changes nothing."""
    created = await api.made(api.ns("configmaps"), config_map("a"))
    path = api.ns("configmaps", "a")
    revision = created["metadata"]["resourceVersion"]
    first = await api.patch(path, {"metadata": {"resourceVersion": revision, "labels": {"n": "1"}}})
    assert first.code == 200
    second = await api.patch(path, {"metadata": {"resourceVersion": revision, "labels": {"n": "2"}}})
    assert (second.code, second.reason) == (409, "Conflict")
    assert "the object has been modified" in second.message
    assert (await api.get(path)).body["metadata"]["labels"] == {"n": "1"}


async def test_a_patch_with_a_foreign_uid_is_refused(api: Subject) -> None:
    """uid in a patch body: a wrong one alone answers 422 (immutable), together with a stale revision 409."""
    created = await api.made(api.ns("configmaps"), config_map("a"))
    path = api.ns("configmaps", "a")
    alone = await api.patch(path, {"metadata": {"uid": FOREIGN, "labels": {"n": "1"}}})
    assert (alone.code, alone.causes) == (422, [("FieldValueInvalid", "metadata.uid")])
    assert "field is immutable" in alone.message
    both = await api.patch(path, {"metadata": {"uid": FOREIGN, "resourceVersion": "1"}})
    assert (both.code, both.reason) == (409, "Conflict")
    right = {"uid": created["metadata"]["uid"], "resourceVersion": created["metadata"]["resourceVersion"]}
    assert (await api.patch(path, {"metadata": {**right, "labels": {"n": "1"}}})).code == 200


async def test_a_patch_cannot_rename_or_move(api: Subject) -> None:
    """Another name or namespace in a patch answers 400; another creationTimestamp is ignored."""
    created = await api.made(api.ns("configmaps"), config_map("a"))
    path = api.ns("configmaps", "a")
    assert (await api.patch(path, {"metadata": {"name": "b"}})).code == 400
    assert (await api.patch(path, {"metadata": {"namespace": "b"}})).code == 400
    answer = await api.patch(path, {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}})
    assert answer.body["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]


async def test_merge_patch_replaces_lists_and_removes_nulls(api: Subject) -> None:
    """JSON merge: maps merge, null removes, a list replaces the whole list."""
    body = config_map("a", labels={"x": "1", "y": "2"}, finalizers=["example.com/a", "example.com/b"])
    await api.made(api.ns("configmaps"), body)
    path = api.ns("configmaps", "a")
    patch = {"metadata": {"labels": {"x": None, "z": "3"}, "finalizers": ["example.com/c"]}}
    answer = await api.patch(path, patch)
    assert answer.body["metadata"]["labels"] == {"y": "2", "z": "3"}
    assert answer.body["metadata"]["finalizers"] == ["example.com/c"]
    await api.patch(path, {"metadata": {"finalizers": None}})


async def test_strategic_patch_merges_finalizers_as_a_set(api: Subject) -> None:
    """Strategic merge: finalizers are a set (new ones come first); $deleteFromPrimitiveList takes from it."""
    await api.made(api.ns("configmaps"), config_map("a", finalizers=["example.com/a"]))
    path = api.ns("configmaps", "a")
    answer = await api.patch(path, {"metadata": {"finalizers": ["example.com/b"]}}, STRATEGIC)
    assert answer.body["metadata"]["finalizers"] == ["example.com/b", "example.com/a"]
    body = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}
    answer = await api.patch(path, body, STRATEGIC)
    assert answer.body["metadata"]["finalizers"] == ["example.com/b"]
    await api.patch(path, {"metadata": {"finalizers": None}})


async def test_strategic_patch_merges_conditions_by_type(api: Subject) -> None:
    """Strategic merge: conditions merge by type; $setElementOrder decides the order."""
    name = api.unique("n")
    await api.made("/api/v1/nodes", node(name))
    path = f"/api/v1/nodes/{name}/status"

    async def conditions(status: dict[str, Any]) -> list[tuple[str, str]]:
        answer = await api.patch(path, {"status": status}, STRATEGIC)
        return [(found["type"], found["status"]) for found in answer.body["status"]["conditions"]]

    assert await conditions({"conditions": [{"type": "Ready", "status": "True"}]}) == [("Ready", "True")]
    two = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "False"}]
    assert await conditions({"conditions": two}) == [("DiskPressure", "False"), ("Ready", "False")]
    order = [{"type": "Ready"}, {"type": "DiskPressure"}]
    changed = {"$setElementOrder/conditions": order, "conditions": [{"type": "Ready", "status": "True"}]}
    assert await conditions(changed) == [("Ready", "True"), ("DiskPressure", "False")]
    await api.delete(f"/api/v1/nodes/{name}")


async def test_strategic_patch_replaces_atomic_lists(api: Subject) -> None:
    """Strategic merge: taints have no merge key, the patch's list replaces them."""
    name = api.unique("n")
    body = node(name)
    body["spec"] = {"taints": [{"key": "a", "effect": "NoSchedule"}]}
    await api.made("/api/v1/nodes", body)
    patch = {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}
    answer = await api.patch(f"/api/v1/nodes/{name}", patch, STRATEGIC)
    assert [taint["key"] for taint in answer.body["spec"]["taints"]] == ["b"]
    await api.delete(f"/api/v1/nodes/{name}")


async def test_strategic_patch_merges_containers_by_name(api: Subject) -> None:
    """Strategic merge: a container is found by its name and keeps what the patch does not name."""
    await api.made(api.ns("pods"), pod("a"))
    patch = {"spec": {"containers": [{"name": "c", "image": "registry.example.com/image:2"}]}}
    answer = await api.patch(api.ns("pods", "a"), patch, STRATEGIC)
    container = answer.body["spec"]["containers"][0]
    assert (container["name"], container["image"]) == ("c", "registry.example.com/image:2")
    assert container["imagePullPolicy"] == "IfNotPresent"


async def test_json_patch_applies_operations_in_order(api: Subject) -> None:
    """JSON patch: add, replace, remove, move, copy and test; escapes in pointers."""
    await api.made(api.ns("configmaps"), config_map("a", annotations={"example.com/x": "1"}))
    operations = [
        {"op": "test", "path": "/metadata/annotations/example.com~1x", "value": "1"},
        {"op": "replace", "path": "/metadata/annotations/example.com~1x", "value": "2"},
        {"op": "add", "path": "/data/n", "value": "v"},
        {"op": "copy", "from": "/data/n", "path": "/data/m"},
        {"op": "move", "from": "/data/a", "path": "/data/z"},
    ]
    answer = await api.patch(api.ns("configmaps", "a"), operations, JSON_PATCH)
    assert answer.code == 200
    assert answer.body["metadata"]["annotations"] == {"example.com/x": "2"}
    assert answer.body["data"] == {"n": "v", "m": "v", "z": "b"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": "other"},
        {"op": "remove", "path": "/data/missing"},
        {"op": "replace", "path": "/data/a/deeper", "value": "x"},
    ],
)
async def test_json_patch_that_does_not_apply_changes_nothing(api: Subject, operation: dict[str, str]) -> None:
    """A failing test, or a path that is not there, answers 422 and leaves the object alone."""
    created = await api.made(api.ns("configmaps"), config_map("a"))
    operations = [{"op": "add", "path": "/data/n", "value": "v"}, operation]
    answer = await api.patch(api.ns("configmaps", "a"), operations, JSON_PATCH)
    assert (answer.code, answer.reason) == (422, "Invalid")
    stored = await api.get(api.ns("configmaps", "a"))
    assert stored.body["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


async def test_patches_that_are_none_are_refused(api: Subject) -> None:
    """An unknown patch type answers 415; malformed JSON and a list as merge patch answer 400."""
    await api.made(api.ns("configmaps"), config_map("a"))
    path = api.ns("configmaps", "a")
    assert (await api.call("PATCH", path, {"a": 1}, content_type="application/foo")).code == 415
    assert (await api.call("PATCH", path, b"{nope", content_type="application/merge-patch+json")).code == 400
    assert (await api.patch(path, [1])).code == 400
    assert (await api.patch(path, {"op": "add"}, JSON_PATCH)).code == 400
