"""One extender, asked by kube-scheduler and by us about the same Pods: the same outcome and words."""

from __future__ import annotations

import json
import re
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.api import PODS, PRIORITY_CLASSES, Api
from e2e.controlplane import ControlPlane
from e2e.driver import add_node
from e2e.extender import PolicyExtender, serving
from e2e.objects import pod
from e2e.scheduler import SchedulerProcess, condition
from e2e.waiting import eventually

NS = "default"
THEIRS, OURS = "default-scheduler", "dra-scheduler"
Object = dict[str, Any]
MANAGED = "example.com/licence"


def extender(url: str, **fields: Any) -> Object:
    """An extenders[] entry that filters and scores."""
    return {"urlPrefix": url, "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 2, **fields}


async def outcome(api: Api, scheduler: str, body: Object) -> tuple[str, str]:
    """(node, message) of a Pod once it is bound or told why not."""
    name = body["metadata"]["name"]
    await api.create(PODS, body | {"spec": body["spec"] | {"schedulerName": scheduler}}, NS)

    result: list[tuple[str, str]] = []

    async def settled() -> bool:
        found = await api.get(PODS, name, NS)
        node, message = found["spec"].get("nodeName", ""), condition(found).get("message", "")
        if node or message:
            result[:] = [(node, "" if node else message)]
        return bool(result)

    await eventually(settled, f"pod {name} of {scheduler} settles")
    await api.delete_all(PODS, NS, grace_period_s=0)
    return result[0]


def licensed(name: str) -> Object:
    """A Pod that the extender manages."""
    return pod(name, limits={MANAGED: "1"}, requests={MANAGED: "1"})


CASES: dict[str, tuple[PolicyExtender, dict[str, Any], Object]] = {
    "filters and scores": (
        PolicyExtender(refused={"a": "no"}, scores={"c": 9}),
        {},
        pod("p", requests={"cpu": "100m"}),
    ),
    "node names only": (
        PolicyExtender(refused={"a": "no", "b": "no"}, scores={"c": 1}),
        {"nodeCacheCapable": True},
        pod("p"),
    ),
    "refuses all": (
        PolicyExtender(refused={"a": "licence in use", "b": "licence in use"}, impossible={"c": "no licence"}),
        {},
        pod("p"),
    ),
    "answers with an error": (PolicyExtender(errors={"filter": "database away"}), {}, pod("p")),
    "answers 500": (PolicyExtender(codes={"filter": 500}), {}, pod("p")),
    "500 and ignorable": (
        PolicyExtender(codes={"filter": 500}, scores={"b": 5}),
        {"ignorable": True},
        pod("p"),
    ),
    "scoring fails": (
        PolicyExtender(codes={"prioritize": 500}, refused={"a": "no", "c": "no"}),
        {},
        pod("p"),
    ),
    "manages a resource": (
        PolicyExtender(refused={"a": "no", "c": "no"}),
        {"managedResources": [{"name": MANAGED, "ignoredByScheduler": True}]},
        licensed("p"),
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_the_same_answers_have_the_same_outcome(
    name: str, clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Node, message and the verbs asked for agree."""
    policy, fields, body = CASES[name]
    for node in "abc":
        await add_node(clean_cluster, node)
    found: dict[str, Any] = {}
    async with serving(policy) as url:
        config = {"extenders": [extender(url, **fields)]}
        control_plane.start_kube_scheduler(config)
        found[THEIRS] = *await outcome(clean_cluster, THEIRS, body), policy.verbs()[:2]
        control_plane.stop_kube_scheduler()
        asked = {verb: sorted(request) for verb, request in policy.asked}
        policy.asked.clear()
        ours = SchedulerProcess(tmp_path, control_plane.kubeconfig_for("system:kube-scheduler"), config=config)
        with ours:
            found[OURS] = *await outcome(clean_cluster, OURS, body), policy.verbs()[:2]
        assert {verb: sorted(request) for verb, request in policy.asked} == asked
    theirs_text, ours_text = found[THEIRS][1], found[OURS][1]
    assert found[OURS] == found[THEIRS], (theirs_text, ours_text)


async def test_victims_and_bindings_are_the_extenders(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Of two nodes it leaves one for preemption, and it makes the Binding itself."""
    for node in "ab":
        await add_node(clean_cluster, node, cpu="4")
    await clean_cluster.create(PRIORITY_CLASSES, {"metadata": {"name": "extender-high"}, "value": 1000})
    found: dict[str, Any] = {}

    async def bind(body: Object) -> str:
        await clean_cluster.bind(body["PodNamespace"], body["PodName"], body["Node"])
        return ""

    for scheduler in (THEIRS, OURS):
        policy = PolicyExtender(only_victims_on="b", bind=bind)
        async with serving(policy) as url:
            config = {"extenders": [{"urlPrefix": url, "preemptVerb": "preempt", "bindVerb": "bind"}]}
            for node in "ab":
                low = pod(f"low-{node}", requests={"cpu": "3"}, nodeName=node, terminationGracePeriodSeconds=0)
                await clean_cluster.create(PODS, low, NS)
            high = pod("high", requests={"cpu": "2"}, priorityClassName="extender-high")
            with _running(scheduler, control_plane, tmp_path, config):
                await clean_cluster.create(PODS, high | {"spec": high["spec"] | {"schedulerName": scheduler}}, NS)

                async def bound() -> bool:
                    await _remove_going(clean_cluster)
                    return bool((await clean_cluster.get(PODS, "high", NS))["spec"].get("nodeName"))

                await eventually(bound, f"{scheduler} places the Pod")
                left = sorted(one["metadata"]["name"] for one in await clean_cluster.list(PODS, NS))
                node = (await clean_cluster.get(PODS, "high", NS))["spec"]["nodeName"]
                keys = {verb: sorted(body) for verb, body in policy.asked}
                found[scheduler] = node, left, keys, sorted(set(policy.verbs()))
        await clean_cluster.delete_all(PODS, NS, grace_period_s=0)
    assert found[OURS] == found[THEIRS]
    assert found[OURS][:2] == ("b", ["high", "low-a"])


@contextmanager
def _running(scheduler: str, plane: ControlPlane, folder: Path, config: Object) -> Iterator[None]:
    if scheduler == THEIRS:
        plane.start_kube_scheduler(config)
        try:
            yield
        finally:
            plane.stop_kube_scheduler()
    else:
        with SchedulerProcess(folder, plane.kubeconfig_for("system:kube-scheduler"), config=config):
            yield


async def _remove_going(api: Api) -> None:
    """There is no kubelet here to end what is being deleted."""
    for one in await api.list(PODS, NS):
        if one["metadata"].get("deletionTimestamp"):
            await api.delete(PODS, one["metadata"]["name"], NS, grace_period_s=0, missing_ok=True)


def _ask(url: str, token: str, path: str) -> str:
    request = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {token}"})
    context = ssl._create_unverified_context()  # both certificates are self-signed, made at start
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        return str(answer.read().decode())


OWN_FLAGS = {"verify-caches", "trust-loopback", "namespaces", "dashboard"}
OWN_FLAGS |= {"audit-file", "audit-max-age", "audit-max-size", "record", "record-max-size"}


@pytest.mark.parametrize("path", ["/configz", "/metrics/resources", "/flagz", "/metrics"])
async def test_endpoints_show_what_kube_schedulers_show(
    path: str, clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The same keys, samples, flags and metric names, but for what the documents list."""
    await add_node(clean_cluster, "a")
    body = pod("p", scheduler="nobody", requests={"cpu": "100m", "memory": "1Gi"}, limits={"memory": "2Gi"})
    await clean_cluster.create(PODS, body, NS)
    control_plane.start_kube_scheduler({})
    kubeconfig = control_plane.kubeconfig_for("system:kube-scheduler")
    with SchedulerProcess(tmp_path, kubeconfig) as ours:

        async def shown() -> bool:
            return 'pod="p"' in ours.get("/metrics/resources")

        await eventually(shown, "the Pod's resources are shown")
        here = ours.get(path)
    there = _ask(control_plane.kube_scheduler_url, control_plane.admin_token, path)
    kinds: dict[str, Callable[[str], set[Any]]] = {
        "/configz": _keys,
        "/metrics/resources": _samples,
        "/flagz": _flags,
        "/metrics": _families,
    }
    compare = kinds[path]
    assert compare(there) - compare(here) == set()
    if path != "/metrics":
        extra = OWN_FLAGS if path == "/flagz" else set()
        assert compare(here) - compare(there) == extra


def _keys(text: str) -> set[str]:
    """Paths of all fields of a JSON document."""
    found: set[str] = set()

    def walk(value: Any, path: str) -> None:
        found.add(path)
        if isinstance(value, dict):
            for key, entry in value.items():
                walk(entry, f"{path}.{key}")
        elif isinstance(value, list):
            for index, entry in enumerate(value):
                walk(entry, f"{path}[{index}]")

    walk(json.loads(text), "")
    return found


def _samples(text: str) -> set[tuple[str, frozenset[str], float]]:
    return {
        (name, frozenset(labels.split(",")), float(value))
        for name, labels, value in re.findall(r"^(\w+)\{(.*)\} (\S+)$", text, re.MULTILINE)
    }


def _flags(text: str) -> set[str]:
    # kube-scheduler draws what stands between name and value, so that nobody parses it.
    flags = {re.split(r"[:= ]", line)[0] for line in text.splitlines()[3:] if line}
    return flags - {"help"}


def _families(text: str) -> set[str]:
    names = set(re.findall(r"^# TYPE (scheduler_\w+|kubernetes_\w+|leader_\w+) ", text, re.MULTILINE))
    return {name.removesuffix("_total") for name in names}
