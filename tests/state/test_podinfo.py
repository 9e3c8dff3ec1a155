"""PodInfo: what a node must count, computed once per template; and when a later object needs no recount."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api.core import Pod
from scheduler.api.kinds import POD, convert
from scheduler.errors import InternalError
from scheduler.state import podinfo
from scheduler.state.podinfo import PodInfo, pod_info


def pod(
    name: str = "p", *, meta: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any
) -> Pod:
    requests = spec.pop("requests", {"cpu": "1", "memory": "1Gi"})
    containers = [{"name": "c", "image": "i", "resources": {"requests": requests}}]
    item = {
        "metadata": {"name": name, "namespace": "d", "uid": f"uid-{name}", **(meta or {})},
        "spec": {"containers": containers, **spec},
        "status": status or {},
    }
    found: Pod = convert(POD, item)
    return found


def test_pods_of_one_template_share_their_amounts_and_nothing_else() -> None:
    one, two = pod_info(pod("a")), pod_info(pod("b"))
    assert one.requests is two.requests
    assert one.scorer_requests() is two.scorer_requests()
    assert (one.uid, two.uid) == ("uid-a", "uid-b")
    assert pod_info(pod("c", requests={"cpu": "2"})).requests == {"cpu": 2000}


def test_nonsense_is_told_with_the_pod_it_is_in() -> None:
    """Each Pod has its own error: it names the Pod."""
    for name in "ab":
        info = pod_info(pod(name, requests={"cpu": "many"}))
        assert f"d/{name}" in str(info.problem)
        assert info.requests == info.node_requests == info.scorer_requests() == {}


def test_what_the_kubelet_granted_counts_for_that_pod_alone() -> None:
    granted = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]}
    assert pod_info(pod(status=granted)).node_requests["cpu"] == 3000
    assert pod_info(pod()).node_requests["cpu"] == 1000


def test_templates_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podinfo, "_TEMPLATES_MAX", 3)
    for millis in range(1, 10):
        assert pod_info(pod(requests={"cpu": f"{millis}m"})).requests == {"cpu": millis}
        assert len(podinfo._known) <= 3


def test_a_stale_amount_is_found() -> None:
    info = PodInfo(pod())
    info.requests = {"cpu": 1}
    with pytest.raises(InternalError, match="requests kept for pod d/p are stale"):
        info.verify()


CHANGES: dict[str, dict[str, Any]] = {
    "label": {"meta": {"labels": {"a": "b"}}},
    "annotation": {"meta": {"annotations": {"a": "b"}}},
    "deleted": {"meta": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    "phase": {"status": {"phase": "Running"}},
    "requests": {"requests": {"cpu": "2"}},
    "priority": {"priority": 5},
    "volume": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    "affinity": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}},
    "port": {"initContainers": [{"name": "s", "restartPolicy": "Always", "ports": [{"hostPort": 80}]}]},
    "granted": {"status": {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "7"}}}]}},
}


@given(st.sampled_from(sorted(CHANGES)))
def test_whatever_somebody_counts_needs_a_recount(name: str) -> None:
    assert not PodInfo(pod(**CHANGES[name])).same_on_node(PodInfo(pod()))


def test_a_binding_and_its_condition_need_none() -> None:
    bound = pod(
        meta={"resourceVersion": "7"}, nodeName="n", status={"conditions": [{"type": "PodScheduled", "status": "True"}]}
    )
    assert PodInfo(bound).same_on_node(PodInfo(pod()))


def test_another_pod_is_never_the_same() -> None:
    assert not PodInfo(pod("q")).same_on_node(PodInfo(pod()))
