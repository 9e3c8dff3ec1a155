"""What only the embedded server has: bulk loading, switches, restart, history limits, bookmarks on demand."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
import yaml

from e2e.api import Api
from e2e.behaviour.subject import Json, Subject, allocation, claim, config_map, node, pod, request
from scheduler.embedded import EmbeddedServer
from scheduler.embedded.status import ApiError


def in_default(obj: Json) -> Json:
    return {**obj, "metadata": {**obj["metadata"], "namespace": "default"}}


async def test_loading_keeps_the_status() -> None:
    """load() stores a claim with its allocation and a running Pod with its uid, which a create would not."""
    server = EmbeddedServer(controllers=False)
    running = {**in_default(pod("p", nodeName="n")), "status": {"phase": "Running"}}
    running["metadata"]["uid"] = "pod-uid"
    taken = {**in_default(claim("c")), "status": {"allocation": allocation()}}
    server.load([node("n"), running, taken])
    await server.start()
    async with Api(server.url) as client:
        api = Subject(client, "default")
        stored = (await api.get(api.ns("pods", "p"))).body
        assert stored["status"]["phase"] == "Running"
        assert stored["metadata"]["uid"] == "pod-uid"
        assert stored["status"]["qosClass"] == "BestEffort"
        assert (await api.get(api.claims("c"))).body["status"]["allocation"] == allocation()
    await server.stop()


def test_loading_lets_broken_selectors_in() -> None:
    """load() stores a selector that does not compile, for tests of what the scheduler says about it."""
    selectors = [{"cel": {"expression": "nope("}}]
    (record,) = EmbeddedServer().load([in_default(claim("c", request(selectors=selectors)))])
    assert record.obj["spec"]["devices"]["requests"][0]["exactly"]["selectors"] == selectors


def test_loading_refuses_what_create_refuses() -> None:
    """load() runs the same validation and names the kinds it does not know."""
    server = EmbeddedServer()
    server.load([node("n")])
    with pytest.raises(ApiError, match='nodes "n" already exists'):
        server.load([node("n")])
    with pytest.raises(ValueError, match="not served here"):
        server.load([{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}])


async def test_a_seed_repeats_names_and_uids() -> None:
    """Two servers with one seed give equal uids and equal generated names."""
    made = []
    for _ in range(2):
        wanted = {"apiVersion": "v1", "kind": "Node", "metadata": {"generateName": "n-"}}
        (record,) = EmbeddedServer(seed=7).load([wanted])
        made.append((record.key, record.uid))
    assert made[0] == made[1]


async def test_without_controllers_nothing_reacts() -> None:
    """controllers=False: no claim is made from a template, a terminating namespace stays."""
    server = EmbeddedServer(controllers=False)
    await server.start()
    spec = {"spec": {"devices": {"requests": []}}}
    template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t"}}
    entries = [{"name": "x", "resourceClaimTemplateName": "t"}]
    server.load([{**template, "spec": spec}, pod("p", resourceClaims=entries)])
    async with Api(server.url) as client:
        api = Subject(client, "default")
        await api.delete("/api/v1/namespaces/kube-public")
        await asyncio.sleep(0.05)
        assert (await api.get(api.claims())).body["items"] == []
        assert (await api.get("/api/v1/namespaces/kube-public")).body["status"]["phase"] == "Terminating"
    await server.stop()


async def test_a_restarted_server_has_its_port_and_objects(server: EmbeddedServer, api: Subject) -> None:
    """stop() ends watches and refuses connections; start() goes on with the same URL, objects and revisions."""
    created = await api.made(api.ns("configmaps"), config_map("a"))
    url = server.url
    async with api.watch(api.ns("configmaps"), resourceVersion=created["metadata"]["resourceVersion"]) as stream:
        await server.stop()
        with pytest.raises((EOFError, aiohttp.ClientError)):
            await stream.next()
    with pytest.raises(aiohttp.ClientError):
        await api.get(api.ns("configmaps", "a"))
    assert await server.start() == url
    assert (await api.get(api.ns("configmaps", "a"))).body == created
    assert (await api.patch(api.ns("configmaps", "a"), {"data": {"x": "y"}})).code == 200


async def test_idle_watches_hear_the_revision() -> None:
    """With allowWatchBookmarks an idle watch gets bookmarks that follow writes to other kinds."""
    server = EmbeddedServer(bookmark_interval_s=0.02)
    await server.start()
    async with Api(server.url) as client:
        api = Subject(client, "default")
        start = (await api.get(api.claims())).revision
        parameters = {"resourceVersion": str(start), "allowWatchBookmarks": "true"}
        async with api.watch(api.claims(), **parameters) as stream:
            event_type, bookmark = await stream.next()
            assert (event_type, bookmark["kind"]) == ("BOOKMARK", "ResourceClaim")
            written = await api.post(api.ns("configmaps"), config_map("a"))
            while int(bookmark["metadata"]["resourceVersion"]) < written.revision:
                event_type, bookmark = await stream.next()
                assert event_type == "BOOKMARK"
    await server.stop()


async def test_a_reader_that_is_too_slow_loses_its_stream() -> None:
    """A watcher whose place in history is gone is ended, not served with a gap; its next watch from there is 410."""
    server = EmbeddedServer(history=50)
    await server.start()
    async with Api(server.url) as client:
        api = Subject(client, "default")
        start = (await api.get(api.ns("configmaps"))).revision
        async with api.watch(api.ns("configmaps"), resourceVersion=str(start)) as stream:
            server.load([in_default(config_map(f"c{index}")) for index in range(200)])
            with pytest.raises(EOFError):
                await stream.next()
        async with api.watch(api.ns("configmaps"), resourceVersion=str(start)) as stream:
            assert (await stream.next())[0] == "ERROR"
    await server.stop()


async def test_the_kubeconfig_names_the_server(server: EmbeddedServer, tmp_path: Path) -> None:
    """write_kubeconfig gives a file with one context for this URL."""
    path = server.write_kubeconfig(tmp_path / "config")
    config = yaml.safe_load(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == server.url
    assert config["current-context"] == config["contexts"][0]["name"]


async def test_reviews_can_be_decided_by_a_test(server: EmbeddedServer, api: Subject) -> None:
    """reviewer.authenticate and reviewer.authorize replace the answers that let everybody in."""
    server.reviewer.authenticate = lambda token: "alice" if token == "good" else None
    server.reviewer.authorize = lambda spec: spec.get("user") == "alice"
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    good = (await api.post(path, {"spec": {"token": "good"}})).body["status"]
    assert (good["authenticated"], good["user"]["username"]) == (True, "alice")
    assert (await api.post(path, {"spec": {"token": "bad"}})).body["status"] == {"authenticated": False}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert (await api.post(path, {"spec": {"user": "alice"}})).body["status"]["allowed"] is True
    assert (await api.post(path, {"spec": {"user": "bob"}})).body["status"]["allowed"] is False


async def test_unknown_fields_survive(api: Subject) -> None:
    """Fields the server does not know are stored and come back from every kind of write."""
    body = pod("a", futureField={"x": 1})
    await api.made(api.ns("pods"), body)
    await api.patch(api.ns("pods", "a", "status"), {"status": {"phase": "Running", "futureStatus": [1]}})
    stored = (await api.patch(api.ns("pods", "a"), {"metadata": {"labels": {"a": "b"}}})).body
    assert stored["spec"]["futureField"] == {"x": 1}
    assert stored["status"]["futureStatus"] == [1]
