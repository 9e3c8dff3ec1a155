"""WATCH: from a revision on, through selectors, with bookmarks, to its end."""

from __future__ import annotations

import pytest

from e2e.behaviour.subject import Subject, binding, config_map, pod


async def test_a_watch_replays_and_goes_on(api: Subject) -> None:
    """From an old revision: what happened since, in order, then what happens; a deletion has a revision of its own."""
    first = await api.made(api.ns("configmaps"), config_map("a"))
    start = first["metadata"]["resourceVersion"]
    changed = await api.patch(api.ns("configmaps", "a"), {"data": {"n": "1"}})
    async with api.watch(api.ns("configmaps"), resourceVersion=start) as stream:
        event_type, obj = await stream.next()
        assert (event_type, obj["metadata"]["resourceVersion"]) == ("MODIFIED", str(changed.revision))
        assert (obj["kind"], obj["apiVersion"]) == ("ConfigMap", "v1")
        await api.made(api.ns("configmaps"), config_map("b"))
        event_type, obj = await stream.next()
        assert (event_type, obj["metadata"]["name"]) == ("ADDED", "b")
        await api.delete(api.ns("configmaps", "b"))
        event_type, gone = await stream.next()
        assert (event_type, gone["metadata"]["name"]) == ("DELETED", "b")
        assert int(gone["metadata"]["resourceVersion"]) > int(obj["metadata"]["resourceVersion"])


async def test_a_watch_without_revision_starts_with_what_is_there(api: Subject) -> None:
    """No resourceVersion: the present objects as ADDED, then changes."""
    await api.made(api.ns("secrets"), config_map("a") | {"kind": "Secret", "data": {}})
    async with api.watch(api.ns("secrets")) as stream:
        assert (await stream.next())[0] == "ADDED"
        await api.delete(api.ns("secrets", "a"))
        assert (await stream.next())[0] == "DELETED"


async def test_objects_enter_and_leave_a_label_selector(api: Subject) -> None:
    """A change into the selector is ADDED, within it MODIFIED, out of it DELETED with the state it had inside."""
    created = await api.made(api.ns("configmaps"), config_map("a"))
    path = api.ns("configmaps", "a")
    start = created["metadata"]["resourceVersion"]
    async with api.watch(api.ns("configmaps"), resourceVersion=start, labelSelector="k=1") as stream:
        await api.patch(path, {"metadata": {"labels": {"k": "1"}}})
        assert (await stream.next())[0] == "ADDED"
        await api.patch(path, {"data": {"n": "1"}})
        assert (await stream.next())[0] == "MODIFIED"
        left = await api.patch(path, {"metadata": {"labels": {"k": "2"}}})
        event_type, obj = await stream.next()
        assert (event_type, obj["metadata"]["labels"]) == ("DELETED", {"k": "1"})
        assert obj["metadata"]["resourceVersion"] == str(left.revision)
        await api.patch(path, {"data": {"n": "2"}})
        await api.patch(path, {"metadata": {"labels": {"k": "1"}}})
        assert (await stream.next())[0] == "ADDED"


async def test_a_finished_pod_leaves_the_watch_of_pods_that_run(api: Subject) -> None:
    """With status.phase!=Succeeded,status.phase!=Failed a Pod that finishes is DELETED for the watcher."""
    created = await api.made(api.ns("pods"), pod("a"))
    selector = "status.phase!=Succeeded,status.phase!=Failed"
    start = created["metadata"]["resourceVersion"]
    async with api.watch(api.ns("pods"), resourceVersion=start, fieldSelector=selector) as stream:
        await api.post(api.ns("pods", "a", "binding"), binding("a", "n1"))
        event_type, obj = await stream.next()
        assert (event_type, obj["spec"]["nodeName"]) == ("MODIFIED", "n1")
        done = await api.patch(api.ns("pods", "a", "status"), {"status": {"phase": "Succeeded"}})
        event_type, obj = await stream.next()
        assert (event_type, obj["status"]["phase"]) == ("DELETED", "Pending")
        assert obj["metadata"]["resourceVersion"] == str(done.revision)


async def test_a_watch_of_one_object(api: Subject) -> None:
    """metadata.name selects one object."""
    created = await api.made(api.ns("configmaps"), config_map("a"))
    start = created["metadata"]["resourceVersion"]
    async with api.watch(api.ns("configmaps"), resourceVersion=start, fieldSelector="metadata.name=b") as stream:
        await api.patch(api.ns("configmaps", "a"), {"data": {"n": "1"}})
        await api.made(api.ns("configmaps"), config_map("b"))
        event_type, obj = await stream.next()
        assert (event_type, obj["metadata"]["name"]) == ("ADDED", "b")


async def test_a_write_without_change_makes_no_event(api: Subject) -> None:
    """A patch that changes nothing is not seen by watches."""
    created = await api.made(api.ns("configmaps"), config_map("a", labels={"k": "v"}))
    start = created["metadata"]["resourceVersion"]
    async with api.watch(api.ns("configmaps"), resourceVersion=start) as stream:
        await api.patch(api.ns("configmaps", "a"), {"metadata": {"labels": {"k": "v"}}})
        await api.patch(api.ns("configmaps", "a"), {"metadata": {"labels": {"k": "w"}}})
        event_type, obj = await stream.next()
        assert (event_type, obj["metadata"]["labels"]) == ("MODIFIED", {"k": "w"})


async def test_initial_events_end_with_a_bookmark(api: Subject) -> None:
    """sendInitialEvents: the present objects, then a bookmark that says so, at a revision not older than theirs."""
    created = await api.made(api.ns("secrets"), config_map("a") | {"kind": "Secret", "data": {}})
    parameters = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with api.watch(api.ns("secrets"), **parameters) as stream:
        event_type, obj = await stream.next()
        assert (event_type, obj["metadata"]["name"]) == ("ADDED", "a")
        event_type, bookmark = await stream.next()
        assert event_type == "BOOKMARK"
        assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(bookmark["metadata"]["resourceVersion"]) >= int(created["metadata"]["resourceVersion"])


async def test_a_watch_ends_at_its_time(api: Subject) -> None:
    """timeoutSeconds ends the stream properly."""
    created = await api.made(api.ns("configmaps"), config_map("a"))
    revision = created["metadata"]["resourceVersion"]
    async with api.watch(api.ns("configmaps"), resourceVersion=revision, timeoutSeconds="1") as stream:
        with pytest.raises(EOFError):
            await stream.next()


async def test_a_deleted_pod_is_seen_terminating_first(api: Subject) -> None:
    """Graceful deletion: MODIFIED with deletionTimestamp, MODIFIED with grace 0, DELETED; generation rises once."""
    created = await api.made(api.ns("pods"), pod("a"))
    await api.post(api.ns("pods", "a", "binding"), binding("a", "n1"))
    start = created["metadata"]["resourceVersion"]
    async with api.watch(api.ns("pods"), resourceVersion=start) as stream:
        assert (await stream.next())[1]["spec"]["nodeName"] == "n1"
        await api.delete(api.ns("pods", "a"))
        event_type, obj = await stream.next()
        assert (event_type, obj["metadata"]["deletionGracePeriodSeconds"]) == ("MODIFIED", 30)
        assert obj["metadata"]["generation"] == 2
        await api.delete(api.ns("pods", "a"), {"gracePeriodSeconds": 0})
        for expected in ("MODIFIED", "DELETED"):
            event_type, obj = await stream.next()
            assert (event_type, obj["metadata"]["deletionGracePeriodSeconds"]) == (expected, 0)
            assert obj["metadata"]["generation"] == 2


async def test_the_last_finalizer_goes_with_the_object(api: Subject) -> None:
    """The write that drops the last finalizer is seen as DELETED only, with the state before that write."""
    created = await api.made(api.ns("configmaps"), config_map("a", finalizers=["example.com/hold"]))
    start = created["metadata"]["resourceVersion"]
    async with api.watch(api.ns("configmaps"), resourceVersion=start) as stream:
        await api.delete(api.ns("configmaps", "a"))
        assert (await stream.next())[0] == "MODIFIED"
        await api.patch(api.ns("configmaps", "a"), {"metadata": {"finalizers": None}})
        event_type, obj = await stream.next()
        assert (event_type, obj["metadata"]["finalizers"]) == ("DELETED", ["example.com/hold"])


async def test_malformed_watch_parameters(api: Subject) -> None:
    """An unknown field selector is refused before the stream begins."""
    answer = await api.get(api.ns("pods"), watch="true", fieldSelector="spec.foo=x")
    assert answer.code == 400
