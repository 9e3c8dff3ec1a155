"""Each lint rule finds its fault with the field it is in, and is silent about a sound cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.explain.findings import Finding, Findings
from scheduler.explain.lint import lint
from tests.app.objects import gpu_class, node, pod, template
from tests.explain.clusters import DRIVER, Object, device, held, request, slice_of, snapshot, want

MODEL = f'device.attributes["{DRIVER}"].model'


def linted(items: list[Object], manifests: list[Object] | None = None) -> Findings:
    snap = snapshot([*items, *(manifests or [])])
    objects, stored = snap.objects, snapshot(items).objects
    given = snapshot(manifests or []).objects.raw
    rules = objects.of("DeviceTaintRule")
    return lint(snap.state, objects.templates, rules, stored.raw, snap.profiles, given)


def base(devices: list[Object], *more: Object) -> list[Object]:
    return [node("n1"), gpu_class(), slice_of("n1", devices), *more]


def rule(**selector: str) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "rule"},
        "spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": "NoExecute"}},
    }


def named_class(name: str, resource: str) -> Object:
    item = gpu_class(name)
    item["spec"]["extendedResourceName"] = resource
    return item


def applied(item: Object, **lost: Any) -> Object:
    text = json.dumps(item | {"spec": item["spec"] | lost})
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": text}
    return item | {"metadata": item["metadata"] | {"annotations": annotations}}


SHARED = {"allowMultipleAllocations": True}
CASES: list[tuple[str, str, list[Object], str, str]] = [
    (
        "request-matches-nothing",
        "error",
        base([device("a")], want(request("r", 1, f'{MODEL} == "H100"'))),
        "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        "model is A100",
    ),
    (
        "request-matches-nothing",
        "error",
        base([device("a")], want(request("r", 1, f'device.attributes["{DRIVER}"].?modle.orValue("") == "x"'))),
        "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        "no device has gpu.example.com/modle (there is model)",
    ),
    (
        "class-matches-nothing",
        "warning",
        [node("n1"), gpu_class(), slice_of("n1", [device("a")], driver="x.example.com")],
        "spec.selectors",
        "kubectl get resourceslices",
    ),
    (
        "selector-fails",
        "error",
        base([device("a"), {"name": "b"}], want(request("r", 1, f'{MODEL} == "A100"'))),
        "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        f"guard it: has({MODEL}) && (",
    ),
    (
        "selector-does-not-compile",
        "error",
        base([device("a")], want(request("r", 1, "device.("))),
        "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        "mend the expression",
    ),
    (
        "class-missing",
        "error",
        base([device("a")], want(request("r", 1, deviceClassName="gpus"))),
        "spec.devices.requests[0].exactly.deviceClassName",
        "use gpu",
    ),
    (
        "count-too-large",
        "error",
        base([device("a"), device("b")], want(request("r", 3))),
        "spec.devices.requests[0].exactly.count",
        "ask for 2 at most",
    ),
    (
        "count-too-large",
        "error",
        base([device(f"d{n}") for n in range(40)], want(request("r", 33))),
        "spec.devices.requests[0].exactly.count",
        "ask for 32 at most",
    ),
    (
        "constraint-attribute-unknown",
        "error",
        base([device("a")], want(request(), constraints=[{"matchAttribute": f"{DRIVER}/modle"}])),
        "spec.devices.constraints[0].matchAttribute",
        f"use {DRIVER}/model",
    ),
    (
        "constraint-attribute-missing",
        "warning",
        base([device("a"), {"name": "b"}], want(request(), constraints=[{"matchAttribute": f"{DRIVER}/model"}])),
        "spec.devices.constraints[0].matchAttribute",
        "constrain by another one",
    ),
    (
        "match-too-large",
        "error",
        base(
            [device("a"), device("b", model="H100")],
            want(request("r", 2), constraints=[{"matchAttribute": f"{DRIVER}/model"}]),
        ),
        "spec.devices.constraints[0].matchAttribute",
        "ask for 1 at most",
    ),
    (
        "capacity-unknown",
        "error",
        base([device("a", **SHARED)], want(request("r", 1, capacity={"requests": {"memry": "1Gi"}}))),
        "spec.devices.requests[0].exactly.capacity.requests[memry]",
        "use one of memory",
    ),
    (
        "capacity-unit",
        "error",
        base([device("a", memory="40", **SHARED)], want(request("r", 1, capacity={"requests": {"memory": "20Gi"}}))),
        "spec.devices.requests[0].exactly.capacity.requests[memory]",
        "write it in the unit of 40",
    ),
    (
        "capacity-unit",
        "warning",
        base([device("a", **SHARED)], want(request("r", 1, capacity={"requests": {"memory": "20"}}))),
        "spec.devices.requests[0].exactly.capacity.requests[memory]",
        "write it in the unit of 40Gi",
    ),
    (
        "capacity-too-large",
        "error",
        base([device("a", **SHARED)], want(request("r", 1, capacity={"requests": {"memory": "64Gi"}}))),
        "spec.devices.requests[0].exactly.capacity.requests[memory]",
        "ask for 40Gi at most",
    ),
    (
        "claim-missing",
        "error",
        base([device("a")], want(request(), name="wanted"), pod("p", claim="wantd")),
        "spec.resourceClaims[0].resourceClaimName",
        "name wanted",
    ),
    (
        "constraint-request-unknown",
        "error",
        base(
            [device("a")], want(request("one"), constraints=[{"matchAttribute": f"{DRIVER}/model", "requests": ["on"]}])
        ),
        "spec.devices.constraints[0].requests[0]",
        "use one",
    ),
    (
        "distinct-too-large",
        "error",
        base([device("a"), device("b")], want(request("r", 2), constraints=[{"distinctAttribute": f"{DRIVER}/model"}])),
        "spec.devices.constraints[0].distinctAttribute",
        "ask for 1 at most",
    ),
    (
        "field-gated",
        "warning",
        base([device("a", consumesCounters=[{"counterSet": "s", "compatibilityGroups": ["g"], "counters": {}}])]),
        "spec.devices[0].consumesCounters[0].compatibilityGroups",
        "turn DRADeviceCompatibilityGroups on",
    ),
    (
        "field-dropped",
        "error",
        base(
            [device("a")], applied(named_class("other", "x/y") | {"spec": {}}, extendedResourceName="example.com/gpu")
        ),
        "spec.extendedResourceName",
        "turn on the feature in the API server",
    ),
    (
        "extended-resource-shared",
        "warning",
        base([device("a")], named_class("one", "example.com/gpu"), named_class("two", "example.com/gpu")),
        "spec.extendedResourceName",
        "a name of its own",
    ),
    (
        "another-scheduler",
        "note",
        base([device("a")], template("t"), pod("p", template="t", scheduler="default-scheduler")),
        "",
        "set spec.schedulerName",
    ),
    (
        "template-missing",
        "error",
        base([device("a")], template("t"), pod("p", template="other")),
        "spec.resourceClaims[0].resourceClaimTemplateName",
        "create the template",
    ),
    (
        "taint-rule-reach",
        "warning",
        base([device("a")], held("h", "n1", "a", pod="u"), pod("u", claim="h", nodeName="n1"), rule(driver=DRIVER)),
        "spec.deviceSelector",
        "narrow",
    ),
    (
        "taint-rule-reach",
        "warning",
        base([device("a")], rule(driver="nobody")),
        "spec.deviceSelector",
        "compare driver",
    ),
]


@pytest.mark.parametrize(
    ("check", "severity", "items", "path", "fix"), CASES, ids=lambda one: one if isinstance(one, str) else ""
)
def test_the_fault_is_found(check: str, severity: str, items: list[Object], path: str, fix: str) -> None:
    """Rule, severity, field path and advice."""
    found: list[Finding] = [finding for finding in linted(items).findings if finding.check == check]
    assert found, linted(items).findings
    assert (found[0].severity, found[0].path) == (severity, path)
    assert fix in found[0].fix
    assert all((found[0].what, found[0].why, found[0].fix, found[0].subject))


def test_a_manifest_is_compared_with_what_was_stored_of_it() -> None:
    """Without kubectl's annotation: the file that was applied says what should be there."""
    written = named_class("other", "example.com/gpu")
    stored = written | {"spec": {name: value for name, value in written["spec"].items() if name == "selectors"}}
    found = linted(base([device("a")], stored), [written])
    (finding,) = found.findings
    assert (finding.check, finding.subject, finding.path) == (
        "field-dropped",
        "DeviceClass other",
        "spec.extendedResourceName",
    )


def test_another_version_of_an_object_is_not_taken_for_a_loss() -> None:
    """kubectl's annotation may hold an older version, whose fields have other places."""
    item = applied(gpu_class(), lost={"somewhere": "else"})
    annotations = item["metadata"]["annotations"]
    text = annotations["kubectl.kubernetes.io/last-applied-configuration"]
    annotations["kubectl.kubernetes.io/last-applied-configuration"] = text.replace("k8s.io/v1", "k8s.io/v1beta1")
    assert [finding.check for finding in linted(base([device("a")], item)).findings] == []


def test_reach_leaves_out_pods_that_tolerate_the_taint() -> None:
    """Nobody would be evicted: a note, not a warning."""
    tolerant = held("h", "n1", "a", pod="u", tolerations=[{"key": "k", "operator": "Exists"}])
    (finding,) = linted(base([device("a")], tolerant, pod("u", claim="h", nodeName="n1"), rule(driver=DRIVER))).findings
    assert (finding.severity, finding.what) == ("note", "would touch 1 device, 1 Pod, 0 of which do not tolerate it")


def test_a_claim_that_is_nowhere_is_told_without_a_guess() -> None:
    """No name comes near, and no other namespace has it."""
    (finding,) = linted(base([device("a")], pod("p", claim="wanted"))).findings
    assert (finding.check, finding.fix) == (
        "claim-missing",
        "create the claim in the Pod's namespace, or name another",
    )


def test_a_sound_cluster_has_no_findings() -> None:
    """Claims that can be served, templates and classes that match, Pods of ours."""
    matched = want(
        request("r", 2, f'has({MODEL}) && {MODEL} == "A100"'), constraints=[{"matchAttribute": f"{DRIVER}/model"}]
    )
    items = base([device("a"), device("b")], matched, template("t"), pod("p", template="t"))
    assert linted(items).findings == []


def test_reach_counts_devices_and_pods() -> None:
    """The rule's reach in numbers, for Pods that use its devices."""
    items = base([device("a"), device("b")], held("h", "n1", "a", pod="u"), pod("u", claim="h", nodeName="n1"))
    (finding,) = linted([*items, rule(pool="n1")]).findings
    assert finding.what == "would touch 2 devices, 1 Pod, 1 of which do not tolerate it"


def test_equal_claims_of_a_template_are_told_once() -> None:
    """A thousand generated claims with one fault are one finding, at the template."""
    bad = template("t", count=9)
    pods = [pod(f"p{n}", template="t") for n in range(5)]
    found = linted([*base([device("a")]), bad, *pods]).findings
    assert [(finding.check, finding.subject) for finding in found] == [
        ("count-too-large", "ResourceClaimTemplate default/t")
    ]
    assert found[0].path == "spec.spec.devices.requests[0].exactly.count"


def test_without_slices_nothing_is_said_about_devices() -> None:
    """A dump without slices cannot tell whether a request matches; it says so and keeps to what it can judge."""
    found = linted([gpu_class(), want(request("r", 40, deviceClassName="gpus"))])
    assert [finding.check for finding in found.findings] == ["class-missing"]
    assert any("was not judged" in caveat for caveat in found.caveats)


def _workload(kind: str, name: str, scheduler: str | None = "dra-scheduler", **entry: str) -> Object:
    spec: Object = {"containers": [{"name": "main", "image": "i"}], "resourceClaims": [{"name": "gpu", **entry}]}
    if scheduler:
        spec["schedulerName"] = scheduler
    made: Object = {"template": {"spec": spec}}
    if kind == "CronJob":
        made = {"schedule": "@daily", "jobTemplate": {"spec": made}}
    version = "apps/v1" if kind in ("Deployment", "DaemonSet", "StatefulSet", "ReplicaSet") else "batch/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": made}


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "Job", "CronJob"])
def test_what_makes_pods_is_judged_before_there_are_any(kind: str) -> None:
    """A template and a claim that do not exist, and Pods that are left to another scheduler, at the field."""
    there = base([device("a")], template("one"))
    prefix = "spec.jobTemplate.spec.template.spec" if kind == "CronJob" else "spec.template.spec"
    manifests = [
        _workload(kind, "good", resourceClaimTemplateName="one"),
        _workload(kind, "lost", resourceClaimTemplateName="two"),
        _workload(kind, "own", resourceClaimName="nobody"),
        _workload(kind, "foreign", None, resourceClaimTemplateName="one"),
        {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "odd"}, "spec": {"template": 7}},
    ]
    found = {(f.check, f.subject, f.path) for f in linted(there, manifests).findings}
    assert found == {
        ("template-missing", f"{kind} default/lost", f"{prefix}.resourceClaims[0].resourceClaimTemplateName"),
        ("claim-missing", f"{kind} default/own", f"{prefix}.resourceClaims[0].resourceClaimName"),
        ("another-scheduler", f"{kind} default/foreign", f"{prefix}.schedulerName"),
    }
