"""LIST: pages of one revision, selectors, the rules of resourceVersion, and the forms other than plain JSON."""

from __future__ import annotations

import pytest

from e2e.behaviour.subject import Answer, Subject, binding, config_map, pod

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def names(answer: Answer) -> list[str]:
    assert answer.code == 200, answer.body
    return [item["metadata"]["name"] for item in answer.body["items"]]


async def test_a_list_is_ordered_and_knows_its_revision(api: Subject) -> None:
    """Items come by name, without kind; the list has a kind and the revision it shows."""
    for name in ("b", "c", "a"):
        last = await api.made(api.ns("configmaps"), config_map(name))
    answer = await api.get(api.ns("configmaps"), labelSelector="")
    assert [name for name in names(answer) if len(name) == 1] == ["a", "b", "c"]
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("ConfigMapList", "v1")
    assert answer.revision >= int(last["metadata"]["resourceVersion"])
    assert "kind" not in answer.body["items"][0]


async def test_pages_show_one_revision(api: Subject) -> None:
    """limit and continue walk through the state of the first page, whatever is written meanwhile."""
    for name in ("a", "b", "c", "d"):
        await api.made(api.ns("secrets"), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
    first = await api.get(api.ns("secrets"), limit="2")
    assert names(first) == ["a", "b"]
    assert first.body["metadata"]["remainingItemCount"] == 2
    await api.delete(api.ns("secrets", "c"))
    await api.made(api.ns("secrets"), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cc"}})
    second = await api.get(api.ns("secrets"), limit="5", **{"continue": first.body["metadata"]["continue"]})
    assert names(second) == ["c", "d"]
    assert second.revision == first.revision
    assert "continue" not in second.body["metadata"]
    assert names(await api.get(api.ns("secrets"))) == ["a", "b", "cc", "d"]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("k=1", ["a"]),
        ("k==1", ["a"]),
        ("k!=1", ["b", "c"]),
        ("k", ["a", "b"]),
        ("!k", ["c"]),
        ("k in (1,2)", ["a", "b"]),
        ("k notin (1)", ["b", "c"]),
        ("k,other=x", ["b"]),
    ],
)
async def test_label_selectors(api: Subject, selector: str, found: list[str]) -> None:
    """Equality, sets, existence, and several terms at once."""
    await api.made(api.ns("secrets"), config_map("a", labels={"k": "1"}) | {"kind": "Secret", "data": {}})
    await api.made(api.ns("secrets"), config_map("b", labels={"k": "2", "other": "x"}) | {"kind": "Secret", "data": {}})
    await api.made(api.ns("secrets"), config_map("c") | {"kind": "Secret", "data": {}})
    assert names(await api.get(api.ns("secrets"), labelSelector=selector)) == found


async def test_field_selectors(api: Subject) -> None:
    """Pods by node, scheduler, phase and name; unknown fields answer 400."""
    await api.made(api.ns("pods"), pod("a"))
    await api.made(api.ns("pods"), pod("b", schedulerName="other"))
    await api.post(api.ns("pods", "b", "binding"), binding("b", "n1"))
    for selector, found in (
        ("spec.nodeName=n1", ["b"]),
        ("spec.nodeName=", ["a"]),
        ("spec.schedulerName!=other", ["a"]),
        ("status.phase!=Succeeded,status.phase!=Failed", ["a", "b"]),
        ("status.phase=Running", []),
        ("metadata.name=a", ["a"]),
    ):
        assert names(await api.get(api.ns("pods"), fieldSelector=selector)) == found
    answer = await api.get(api.ns("pods"), fieldSelector="spec.foo=x")
    assert (answer.code, answer.message) == (400, "field label not supported: spec.foo")
    answer = await api.get(api.claims(), fieldSelector="spec.foo=x")
    assert (answer.code, '"spec.foo" is not a known field selector' in answer.message) == (400, True)
    assert (await api.get(api.ns("pods"), labelSelector="a b")).code == 400


async def test_lists_of_all_namespaces_hold_this_one(api: Subject) -> None:
    """The collection without namespace lists every namespace; metadata.namespace selects."""
    await api.made(api.ns("pods"), pod("a"))
    answer = await api.get("/api/v1/pods", fieldSelector=f"metadata.namespace={api.namespace}")
    assert names(answer) == ["a"]


async def test_revisions_of_lists(api: Subject) -> None:
    """resourceVersion 0 is any state, Exact an old one, one from the future a 504 with Retry-After."""
    await api.made(api.ns("secrets"), config_map("a") | {"kind": "Secret", "data": {}})
    before = await api.get(api.ns("secrets"))
    await api.made(api.ns("secrets"), config_map("b") | {"kind": "Secret", "data": {}})
    revision = str(before.revision)
    exact = await api.get(api.ns("secrets"), resourceVersion=revision, resourceVersionMatch="Exact")
    assert (names(exact), exact.revision) == (["a"], before.revision)
    newer = await api.get(api.ns("secrets"), resourceVersion=revision, resourceVersionMatch="NotOlderThan")
    assert newer.revision >= before.revision
    assert (await api.get(api.ns("secrets"), resourceVersion="0")).code == 200
    future = await api.get(api.ns("secrets"), resourceVersion=str(before.revision + 1_000_000))
    assert (future.code, future.reason) == (504, "Timeout")
    assert future.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert future.headers["Retry-After"] == "1"


async def test_malformed_list_parameters(api: Subject) -> None:
    """limit, resourceVersion, resourceVersionMatch and continue are checked."""
    path = api.ns("pods")
    assert (await api.get(path, limit="x")).code == 400
    assert (await api.get(path, resourceVersion="x")).code == 400
    assert (await api.get(path, limit="1", **{"continue": "xx"})).code == 400
    match = await api.get(path, resourceVersionMatch="Exact")
    assert (match.code, match.causes) == (422, [("FieldValueForbidden", "resourceVersionMatch")])


async def test_tables_for_kubectl(api: Subject) -> None:
    """as=Table answers columns and rows; each row carries the object's metadata."""
    await api.made(api.ns("pods"), pod("a"))
    answer = await api.call("GET", api.ns("pods"), accept=TABLE)
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [column["name"] for column in answer.body["columnDefinitions"]]
    assert columns[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    (row,) = answer.body["rows"]
    assert [str(cell) for cell in row["cells"][:4]] == ["a", "0/1", "Pending", "0"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "a"


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("/api/v1/nodes", ["Name", "Status", "Roles", "Age", "Version"]),
        ("/api/v1/events", ["Last Seen", "Type", "Reason", "Object"]),
        ("/apis/resource.k8s.io/v1/resourceclaims", ["Name", "State", "Age"]),
        ("/apis/resource.k8s.io/v1/resourceslices", ["Name", "Node", "Driver", "Pool", "Age"]),
        ("/apis/resource.k8s.io/v1/deviceclasses", ["Name", "Age"]),
        ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"]),
    ],
)
async def test_columns(api: Subject, path: str, columns: list[str]) -> None:
    """kubectl's columns of the kinds that people look at."""
    answer = await api.call("GET", path, accept=TABLE)
    shown = [column["name"] for column in answer.body["columnDefinitions"] if column["priority"] == 0]
    assert shown[: len(columns)] == columns


async def test_metadata_only(api: Subject) -> None:
    """as=PartialObjectMetadataList answers metadata and nothing else."""
    await api.made(api.ns("pods"), pod("a"))
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    answer = await api.call("GET", api.ns("pods"), accept=accept)
    assert answer.body["kind"] == "PartialObjectMetadataList"
    (item,) = answer.body["items"]
    assert (item["metadata"]["name"], "spec" in item) == ("a", False)
