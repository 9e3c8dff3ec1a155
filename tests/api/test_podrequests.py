"""Pod requests: the sums of kube-scheduler 1.37 (spec 3.8.1, 3.8.3, 3.8.4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api.core import Pod
from scheduler.api.kinds import POD, convert
from scheduler.api.podrequests import (
    counts,
    is_extended,
    is_scalar,
    nonzero_requests,
    pod_requests,
    scorer_requests,
)
from scheduler.errors import UserError

MIB = 1024 * 1024


def make_pod(containers: list[dict[str, str]], **spec: Any) -> Pod:
    """A Pod from its containers' requests; ``status`` and spec fields by name."""
    status = spec.pop("status", {})
    listed = [{"name": f"c{i}", "resources": {"requests": requests}} for i, requests in enumerate(containers)]
    metadata = {"name": "p", "namespace": "ns", "uid": "u"}
    pod: Pod = convert(POD, {"metadata": metadata, "spec": {"containers": listed, **spec}, "status": status})
    return pod


def init(requests: dict[str, str], *, sidecar: bool = False) -> dict[str, Any]:
    """An init container."""
    container: dict[str, Any] = {"name": "i", "resources": {"requests": requests}}
    return {**container, "restartPolicy": "Always"} if sidecar else container


def test_containers_are_summed_exactly_and_rounded_once() -> None:
    """Two requests of 600 micro-cpu are 2 milli together, not 1 + 1 and not more."""
    pod = make_pod([{"cpu": "600u", "memory": "1500m"}, {"cpu": "600u", "memory": "1500m"}])
    assert pod_requests(pod) == {"cpu": 2, "memory": 3}


def test_init_container_sets_a_floor() -> None:
    """An init container larger than the sum of the containers decides, per resource."""
    pod = make_pod([{"cpu": "1", "memory": "10"}], initContainers=[init({"cpu": "3", "memory": "5"})])
    assert pod_requests(pod) == {"cpu": 3000, "memory": 10}


def test_sidecars_count_from_their_place_on() -> None:
    """A sidecar is added to the containers and to the init containers after it, not to those before."""
    inits = [init({"cpu": "4"}), init({"cpu": "2"}, sidecar=True), init({"cpu": "3"})]
    assert pod_requests(make_pod([{"cpu": "1"}], initContainers=inits)) == {"cpu": 5000}
    assert pod_requests(make_pod([{"cpu": "1"}], initContainers=inits[:2])) == {"cpu": 4000}


def test_pod_level_requests_replace_by_name() -> None:
    """cpu, memory and hugepages of the Pod replace the sum; names that are not given keep it; overhead comes last."""
    pod = make_pod(
        [{"cpu": "1", "memory": "10", "example.com/gpu": "1"}],
        resources={"requests": {"cpu": "300m", "example.com/gpu": "7"}},
        overhead={"cpu": "10m"},
    )
    assert pod_requests(pod) == {"cpu": 310, "memory": 10, "example.com/gpu": 1}
    assert scorer_requests(pod)["cpu"] == 1010


def test_limits_never_count() -> None:
    """A container with limits only requests nothing."""
    pod: Pod = convert(POD, {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}})
    assert pod_requests(pod) == {}


def test_defaults_for_silent_containers() -> None:
    """Each container without a request counts 100m and 200Mi; an explicit 0 stays 0."""
    pod = make_pod([{}, {"cpu": "0", "memory": "1"}])
    assert nonzero_requests(pod) == (100, 200 * MIB + 1)
    assert scorer_requests(pod) == {"cpu": 100, "memory": 200 * MIB + 1}


def test_defaults_with_pod_level_requests() -> None:
    """With pod-level requests the default stands in only for what the total lacks."""
    pod = make_pod([{}, {}], resources={"requests": {"cpu": "1"}})
    assert nonzero_requests(pod) == (1000, 2 * 200 * MIB)
    pod = make_pod([{}, {"memory": "5"}], resources={"requests": {"cpu": "1"}})
    assert nonzero_requests(pod) == (1000, 5)


def statuses(allocated: dict[str, str] | None, actuated: dict[str, str] | None, reason: str = "") -> dict[str, Any]:
    """status of a Pod with one container that is being resized."""
    entry: dict[str, Any] = {"name": "c0"}
    if allocated is not None:
        entry["allocatedResources"] = allocated
    if actuated is not None:
        entry["resources"] = {"requests": actuated}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    return {"containerStatuses": [entry], "conditions": conditions}


@pytest.mark.parametrize(
    ("spec", "allocated", "actuated", "reason", "expected"),
    [
        ("1", None, None, "", 1000),
        ("1", {"cpu": "2"}, {"cpu": "3"}, "", 3000),
        ("5", {"cpu": "2"}, {"cpu": "3"}, "Deferred", 5000),
        ("5", {"cpu": "2"}, {"cpu": "3"}, "Infeasible", 3000),
        ("5", {"cpu": "2"}, None, "Infeasible", 2000),
        ("5", None, None, "Infeasible", 0),
    ],
)
def test_status_views(
    spec: str, allocated: dict[str, str] | None, actuated: dict[str, str] | None, reason: str, expected: int
) -> None:
    """On a node the largest of asked, allocated and actuated counts; an infeasible resize does not."""
    pod = make_pod([{"cpu": spec}], status=statuses(allocated, actuated, reason))
    assert pod_requests(pod, use_status=True).get("cpu", 0) == expected
    assert pod_requests(pod) == {"cpu": int(spec) * 1000}


def test_views_are_compared_as_wholes() -> None:
    """The largest sum counts, not the sum of each container's largest view."""
    containers = [
        {"name": "c0", "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "1"}}},
        {"name": "c1", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "3"}}},
    ]
    pod = make_pod([{"cpu": "1"}, {"cpu": "1"}], status={"containerStatuses": containers})
    assert pod_requests(pod, use_status=True) == {"cpu": 4000}


def test_pod_level_status() -> None:
    """What the kubelet reports for the whole Pod stands for the containers' sum and for pod-level requests."""
    status = {**statuses({"cpu": "9"}, {"cpu": "9"}), "allocatedResources": {"cpu": "2"}}
    status["resources"] = {"requests": {"cpu": "3"}}
    assert pod_requests(make_pod([{"cpu": "1"}], status=status), use_status=True) == {"cpu": 3000}
    own = make_pod([{"cpu": "1"}], status=status, resources={"requests": {"cpu": "1"}})
    assert pod_requests(own, use_status=True) == {"cpu": 3000}
    assert pod_requests(own) == {"cpu": 1000}


def test_nonsense_names_pod_and_field() -> None:
    """A text that is no quantity raises UserError with the Pod and the path."""
    with pytest.raises(UserError) as caught:
        pod_requests(make_pod([{"cpu": "much"}]))
    assert caught.value.subject == "Pod ns/p"
    assert caught.value.field == "spec.containers[c0].resources.requests[cpu]"
    assert '"much"' in caught.value.problem


@pytest.mark.parametrize(
    ("name", "extended", "scalar", "counted"),
    [
        ("cpu", False, False, True),
        ("ephemeral-storage", False, False, True),
        ("example.com/gpu", True, True, True),
        ("hugepages-2Mi", False, True, True),
        ("attachable-volumes-x", False, True, True),
        ("kubernetes.io/thing", False, True, True),
        ("deviceclass.resource.kubernetes.io/a", False, True, True),
        ("requests.example.com/gpu", False, False, False),
        ("bananas", False, False, False),
        ("Example.com/gpu", False, False, False),
        ("a.b/c/d", False, False, False),
        ("a.b/", False, False, False),
    ],
)
def test_resource_names(name: str, extended: bool, scalar: bool, counted: bool) -> None:
    """Extended names have a foreign domain; scalars are these, hugepages, attachable volumes and kubernetes.io's."""
    assert (is_extended(name), is_scalar(name), counts(name)) == (extended, scalar, counted)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=5), st.integers(0, 10**6))
def test_sum_and_floor_property(micro: list[int], largest: int) -> None:
    """Whatever the amounts, the result is the larger of the exact sum and the init container, rounded up."""
    pod = make_pod([{"cpu": f"{value}u"} for value in micro], initContainers=[init({"cpu": f"{largest}u"})])
    assert pod_requests(pod)["cpu"] == -(-max(sum(micro), largest) // 1000)
