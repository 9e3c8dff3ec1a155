"""Dumps, whole and broken: what is read, what is left out and said so, and never a traceback."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.api.kinds import DEVICE_CLASS, DEVICE_TAINT_RULE, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE
from scheduler.dra.features import Features
from scheduler.whatif.build import build_state
from scheduler.whatif.objects import Objects, known_kinds, read_objects
from scheduler.whatif.templates import make_claims
from tests.app.objects import claim, gpu_class, gpu_slice, node, pod, template

KINDS = known_kinds([NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, DEVICE_CLASS, DEVICE_TAINT_RULE])


def read(*items: Any) -> Objects:
    return read_objects(items, KINDS)


def test_lists_within_lists_and_documents_are_the_same() -> None:
    """kubectl's List, a typed list and single documents give the same objects."""
    single = read(node("n1"), gpu_class())
    listed = read({"kind": "List", "apiVersion": "v1", "items": [node("n1"), gpu_class()]})
    entry = {key: value for key, value in node("n1").items() if key not in ("kind", "apiVersion")}
    typed = read({"kind": "NodeList", "apiVersion": "v1", "items": [entry]}, gpu_class())
    assert set(single.decoded) == set(listed.decoded) == set(typed.decoded) == {("Node", "n1"), ("DeviceClass", "gpu")}


def test_missing_kinds_are_named() -> None:
    """A dump without slices cannot judge devices; an empty typed list says that there are none."""
    assert read(node("n1")).missing() == ["Pod", "ResourceSlice", "ResourceClaim", "DeviceClass"]
    empty = [{"kind": f"{kind}List", "apiVersion": "resource.k8s.io/v1", "items": []} for kind in ("ResourceSlice",)]
    assert "ResourceSlice" not in read(*empty).missing()


def test_older_versions_are_read() -> None:
    """v1beta1 claims keep their fields in the request itself."""
    old = claim("c")
    old["apiVersion"] = "resource.k8s.io/v1beta1"
    old["spec"]["devices"]["requests"] = [{"name": "gpu", "deviceClassName": "gpu"}]
    objects = read(old)
    (found,) = objects.of("ResourceClaim")
    assert objects.problems == []
    assert (found.spec.devices.requests[0].exactly.count, found.key) == (1, "default/c")


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("text", "document 1: str is no Kubernetes object"),
        ({"spec": {}}, "document 1: an object without kind is no Kubernetes object"),
        ({"kind": "Node", "apiVersion": "v1", "metadata": {}}, "Node: metadata.name: is missing"),
        ({"kind": "Node", "apiVersion": "v9", "metadata": {"name": "n"}}, "Node n: apiVersion: 'v9' is not a version"),
        (
            {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}, "spec": {"taints": 3}},
            "Node n: $.spec.taints",
        ),
        (claim("c") | {"spec": {"devices": {"requests": "all"}}}, "ResourceClaim default/c: "),
        (template("t") | {"spec": {"spec": {"devices": 1}}}, "ResourceClaimTemplate default/t: "),
    ],
    ids=lambda one: one[:30] if isinstance(one, str) else "",
)
def test_what_cannot_be_read_is_said(item: Any, words: str) -> None:
    """One bad object is named with its field; the good one beside it is read."""
    objects = read(item, node("good"))
    assert ("Node", "good") in objects.decoded
    assert any(words in problem.words() for problem in objects.problems), objects.problems


def test_other_kinds_are_counted() -> None:
    """Kinds that no decision reads are neither problems nor objects."""
    objects = read({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}})
    assert (objects.unknown, objects.problems, objects.decoded) == ({"ConfigMap": 1}, [], {})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "Node", "1Gi"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "status", "name", "devices", "requests", "exactly", "items", "kind"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
_KIND = st.sampled_from(
    ["Node", "Pod", "ResourceClaim", "ResourceSlice", "DeviceClass", "ResourceClaimTemplate", "List"]
)


@settings(max_examples=100, deadline=None)
@given(_KIND, st.dictionaries(st.sampled_from(["metadata", "spec", "status", "items"]), _JSON, max_size=4))
def test_no_dump_raises(kind: str, parts: dict[str, Any]) -> None:
    """Whatever shape an object has, it is read or becomes a problem, and a state can be built of the rest."""
    version = "v1" if kind in ("Node", "Pod", "List") else "resource.k8s.io/v1"
    objects = read({"kind": kind, "apiVersion": version, **parts}, node("good"))
    make_claims(objects)
    state = build_state(objects, Features())
    assert state.nodes.row_of("good") is not None
    state.verify()


def test_claims_are_made_from_templates() -> None:
    """A Pod no controller has seen gets the claim its template would make; a second look makes nothing."""
    objects = read(node("n1"), gpu_class(), gpu_slice("n1", 1), template("one"), pod("p", template="one"))
    assert make_claims(objects) == ["default/p"]
    made = objects.decoded[("ResourceClaim", "default/p-gpu")][1]
    waiting = objects.decoded[("Pod", "default/p")][1]
    assert made.metadata.controller().uid == waiting.uid
    assert waiting.status.resourceClaimStatuses[0].resourceClaimName == "p-gpu"
    assert make_claims(objects) == []


def test_ended_pods_use_nothing() -> None:
    """A Pod that has succeeded does not count on its node."""
    ended = pod("p", nodeName="n1") | {"status": {"phase": "Succeeded"}}
    state = build_state(read(node("n1"), ended), Features())
    assert state.placements == {}
