"""Events: one object in two API groups, the strict rules of events.k8s.io/v1; reviews; discovery."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.behaviour.subject import STRATEGIC, Json, Subject


def event(api: Subject, name: str, **fields: Any) -> Json:
    regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": api.namespace, "name": "a"}
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "dra-scheduler",
        "reportingInstance": "dra-scheduler-host",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": regarding,
        "note": "Successfully assigned",
        "type": "Normal",
        **fields,
    }
    return {key: value for key, value in body.items() if value is not None}


async def test_one_event_in_two_groups(api: Subject) -> None:
    """An Event made through events.k8s.io/v1 is read through core/v1 under core's names, and selected by object."""
    events = api.group("events.k8s.io/v1", "events")
    await api.made(events, event(api, "e"))
    answer = await api.get(api.ns("events", "e"))
    assert answer.body["involvedObject"]["name"] == "a"
    assert answer.body["message"] == "Successfully assigned"
    assert answer.body["reportingComponent"] == "dra-scheduler"
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("Event", "v1")
    found = await api.get(api.ns("events"), fieldSelector="involvedObject.name=a,involvedObject.kind=Pod")
    assert [item["metadata"]["name"] for item in found.body["items"]] == ["e"]
    back = await api.get(f"{events}/e")
    assert (back.body["note"], back.body["apiVersion"]) == ("Successfully assigned", "events.k8s.io/v1")
    assert back.body["deprecatedSource"] == {}


async def test_an_event_becomes_a_series(api: Subject) -> None:
    """A series is patched in; what the Event says can't be changed any more."""
    events = api.group("events.k8s.io/v1", "events")
    await api.made(events, event(api, "e"))
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}
    answer = await api.patch(f"{events}/e", {"series": series}, STRATEGIC)
    assert (answer.code, answer.body["series"]) == (200, series)
    answer = await api.patch(f"{events}/e", {"note": "other"}, STRATEGIC)
    assert (answer.code, answer.causes) == (422, [("FieldValueInvalid", "message")])


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"eventTime": None}, ("FieldValueRequired", "eventTime")),
        ({"reportingController": "a b"}, ("FieldValueInvalid", "reportingController")),
        ({"reportingInstance": None}, ("FieldValueRequired", "reportingInstance")),
        ({"reportingInstance": "x" * 129}, ("FieldValueInvalid", "reportingInstance")),
        ({"action": None}, ("FieldValueRequired", "action")),
        ({"reason": None}, ("FieldValueRequired", "reason")),
        ({"reason": "x" * 129}, ("FieldValueInvalid", "reason")),
        ({"type": "Foo"}, ("FieldValueInvalid", "type")),
        ({"note": "x" * 1025}, ("FieldValueInvalid", "message")),
        ({"deprecatedCount": 1}, ("FieldValueInvalid", "count")),
        (
            {"series": {"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}},
            ("FieldValueInvalid", "series.count"),
        ),
        ({"regarding": {"kind": "Node", "name": "n"}}, ("FieldValueInvalid", "involvedObject.namespace")),
    ],
)
async def test_invalid_events_are_refused(api: Subject, fields: Json, cause: tuple[str, str]) -> None:
    """Each rule of events.k8s.io/v1 answers 422 with its field."""
    answer = await api.post(api.group("events.k8s.io/v1", "events"), event(api, "e", **fields))
    assert (answer.code, answer.causes) == (422, [cause])


async def test_a_note_is_measured_in_bytes(api: Subject) -> None:
    """1024 bytes is the limit of a note: 512 characters of two bytes pass, one more does not."""
    events = api.group("events.k8s.io/v1", "events")
    assert (await api.post(events, event(api, "fits", note="ü" * 512))).code == 201
    assert (await api.post(events, event(api, "long", note="ü" * 513))).code == 422


async def test_events_of_cluster_objects_live_in_default(api: Subject) -> None:
    """An Event about a Node goes into the namespace default."""
    name = api.unique("e")
    body = event(api, name, regarding={"kind": "Node", "name": "n"})
    assert (await api.post("/apis/events.k8s.io/v1/namespaces/default/events", body)).code == 201
    await api.delete(f"/api/v1/namespaces/default/events/{name}")


async def test_reviews_are_answered(api: Subject) -> None:
    """A SubjectAccessReview of the administrator is allowed; a TokenReview answers a status."""
    spec = {"user": "x", "groups": ["system:masters"], "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    answer = await api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {**kind, "spec": spec})
    assert (answer.code, answer.body["status"]["allowed"]) == (201, True)
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    answer = await api.post("/apis/authentication.k8s.io/v1/tokenreviews", {**kind, "spec": {"token": "x"}})
    assert (answer.code, "status" in answer.body) == (201, True)


async def test_discovery_names_what_is_served(api: Subject) -> None:
    """/version, /api, /apis and the resource lists agree on names, scope and sub-resources."""
    version = (await api.get("/version")).body
    assert (version["major"], version["minor"]) == ("1", "37")
    assert version["gitVersion"].startswith("v1.37.2")
    assert (await api.get("/api")).body["versions"] == ["v1"]
    groups = {group["name"]: group for group in (await api.get("/apis")).body["groups"]}
    assert groups["resource.k8s.io"]["preferredVersion"]["version"] == "v1"
    listed = (await api.get("/apis/resource.k8s.io/v1")).body["resources"]
    resources = {entry["name"]: entry for entry in listed}
    assert (resources["resourceclaims"]["kind"], resources["resourceclaims"]["namespaced"]) == ("ResourceClaim", True)
    assert resources["resourceslices"]["namespaced"] is False
    assert "resourceclaims/status" in resources
    core = {entry["name"] for entry in (await api.get("/api/v1")).body["resources"]}
    assert {"pods", "pods/binding", "pods/status", "pods/eviction", "bindings", "nodes/status"} <= core
    assert (await api.get("/readyz")).body == "ok"
