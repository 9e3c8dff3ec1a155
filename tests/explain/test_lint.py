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
    given = snapshot(manifests).objects.raw if manifests else {}
    rules = objects.of("DeviceTaintRule")
    return lint(snap.state, objects.templates, rules, stored.raw, snap.profiles, given, listed=stored.found)


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


MATCH = [{"matchAttribute": f"{DRIVER}/model"}]
TWO_KINDS = [device("a"), device("b", model="H100")]


@pytest.mark.parametrize(
    ("devices", "claim", "check", "path", "what"),
    [
        (
            [device("a"), device("b")],
            want(request("x", 2), request("y", 2)),
            "count-too-large",
            "requests",
            "requests x and y ask for 4 devices together; a node has 2 that match at most, even if every device were "
            "free",
        ),
        (
            TWO_KINDS,
            want(request("x"), request("y"), constraints=MATCH),
            "match-too-large",
            "constraints[0].matchAttribute",
            f"requests x and y ask for 2 devices with one {DRIVER}/model; no node has them, even if every device were "
            "free",
        ),
        (
            [device("a"), device("b")],
            want(request("x"), request("y"), constraints=[{"distinctAttribute": f"{DRIVER}/model"}]),
            "distinct-too-large",
            "constraints[0].distinctAttribute",
            f"requests x and y ask for 2 devices with different {DRIVER}/model; no node has them, even if every device "
            "were free",
        ),
        (
            TWO_KINDS,
            want(request("one"), request("x", 1, f'{MODEL} == "A100"'), request("y", 1, f'{MODEL} == "A100"')),
            "count-too-large",
            "requests",
            "requests x and y ask for 2 devices together; a node has 1 that match at most, even if every device were "
            "free",
        ),
        (
            [device(f"d{number}") for number in range(40)],
            want(request("x", 20), request("y", 20)),
            "count-too-large",
            "requests",
            "requests x and y ask for 40 devices together; no node has them, even if every device were free",
        ),
        (
            [device("a", **SHARED)],
            want(*(request(name, 1, capacity={"requests": {"memory": "30Gi"}}) for name in "xy")),
            "count-too-large",
            "requests",
            "requests x and y ask for 2 devices together; no node has them, even if every device were free",
        ),
        (
            [device("a"), device("b")],
            want(request("x"), {"name": "y", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}),
            "count-too-large",
            "requests",
            "requests x and y ask for devices together; no node has them, even if every device were free",
        ),
        (
            TWO_KINDS,
            want({"name": "x", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}, constraints=MATCH),
            "match-too-large",
            "constraints[0].matchAttribute",
            f"request x asks for devices with one {DRIVER}/model; no node has them, even if every device were free",
        ),
    ],
    ids=["sum", "alike", "different", "only-those-at-fault", "limit-of-a-claim", "shares", "all", "all-alike"],
)
def test_a_claim_that_no_node_could_serve(
    devices: list[Object], claim: Object, check: str, path: str, what: str
) -> None:
    """Every request alone would do; together they are too much, also when nothing is in use."""
    (finding,) = linted(base(devices, claim)).findings
    assert (finding.severity, finding.check, finding.path) == ("error", check, f"spec.devices.{path}")
    assert finding.what == what


def _first_available(*subs: Object, name: str = "r") -> Object:
    return {"name": name, "firstAvailable": [{"deviceClassName": "gpu", **sub} for sub in subs]}


TAINT = {"key": "k", "effect": "NoExecute"}


@pytest.mark.parametrize(
    "items",
    [
        base([device("a")], slice_of(None, [device("far")]), want(request("x"), request("y"))),
        base(TWO_KINDS, want(request("x"), request("y", 1, f'{MODEL} == "H100"'), constraints=[
            {"matchAttribute": f"{DRIVER}/model", "requests": ["y"]}])),
        base([device("a", **SHARED)], want(*(
            request(name, 1, capacity={"requests": {"memory": "20Gi"}}) for name in "xy"))),
        base([device("a"), device("b")], held("h", "n1", "a"), want(request("x", adminAccess=True), request("y"))),
        base([device("a", taints=[TAINT]), device("b", taints=[TAINT])], want(request("x"), request("y"))),
        base([device("a"), device("b")], held("h", "n1", "a", "b"), want(request("x"), request("y"))),
        base([device("a"), device("b")], want({"name": "y", "exactly": {
            "deviceClassName": "gpu", "allocationMode": "All"}})),
        base([device("a"), device("b")], want(_first_available({"name": "big", "count": 2}, {"name": "small"}),
                                              request("y"))),
        base([device("a")], slice_of("n2", [device("b")], count=2), want(request("x"), request("y"))),
        [gpu_class(), slice_of("n1", [device("a"), device("b")]), want(request("x"), request("y"))],
        [gpu_class(), want(request("x"), request("y")), slice_of(None, [device("a")], name="one") | {"spec": {
            "driver": DRIVER, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [device("a")],
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}}}],
    ],
    ids=["for-all-nodes", "constraint-of-one", "shares", "admin", "taints", "in-use", "all", "first-available",
         "incomplete-pool", "no-nodes", "nodes-by-labels"],
)  # fmt: skip
def test_a_claim_that_a_node_could_serve_is_not_blamed(items: list[Object]) -> None:
    """Nor one of which it is not certain: a pool that is not complete, nodes that are not known."""
    assert linted(items).findings == []


def test_what_could_not_be_judged_is_said() -> None:
    """One pool is incomplete, and may have what the claim lacks."""
    items = base([device("a")], slice_of("n2", [device("b")], count=2), want(request("x"), request("y")))
    assert any("was not judged for 1 claim: pools are incomplete" in caveat for caveat in linted(items).caveats)


def test_an_alternative_that_is_passed_over_is_a_note() -> None:
    """The cluster has no H100, but the claim takes an A100 instead; with neither it is an error as before."""
    h100 = {"name": "best", "selectors": [{"cel": {"expression": f'{MODEL} == "H100"'}}]}
    (finding,) = linted(base([device("a")], want(_first_available(h100, {"name": "good"})))).findings
    assert (finding.severity, finding.check) == ("note", "request-matches-nothing")
    (finding,) = linted(base([device("a")], want(_first_available(h100)))).findings
    assert finding.severity == "error"


def test_alternatives_that_all_ask_for_too_much_together() -> None:
    """Whichever of them is taken, the node lacks a device for the other request."""
    claim = want(_first_available({"name": "big", "count": 2}, {"name": "alike", "count": 2}), request("y"))
    (finding,) = linted(base([device("a"), device("b")], claim)).findings
    assert (finding.check, finding.path) == ("count-too-large", "spec.devices.requests")


def test_a_device_is_counted_once_for_all_requests_of_a_constraint() -> None:
    """Two devices are published, one lacks the attribute, and two requests ask for either."""
    claim = want(request("x"), request("y"), constraints=MATCH)
    found = linted(base([device("a"), device("c"), {"name": "b"}], claim)).findings
    assert [finding.what for finding in found] == [
        f"1 of 3 devices that match lacks {DRIVER}/model, for example {DRIVER}/n1/b"
    ]


NO_TEMPLATES: Object = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplateList", "items": []}


def test_a_template_is_missing_in_a_cluster_without_any() -> None:
    """The kind was listed: there is none. Its Pods are told as waiting for it, not as left to another scheduler."""
    lost = pod("p", template="typ", scheduler="default-scheduler")
    found = linted([*base([device("a")], lost), NO_TEMPLATES], [_workload("Job", "j", resourceClaimTemplateName="typ")])
    assert [(finding.check, finding.subject) for finding in found.findings] == [
        ("template-missing", "Pod default/p"),
        ("template-missing", "Job default/j"),
    ]


@pytest.mark.parametrize("user", [pod("p", template="typ"), _workload("Job", "j", resourceClaimTemplateName="typ")])
def test_without_the_kind_no_template_is_called_missing(user: Object) -> None:
    """A dump that does not list templates says nothing of them; that is noted."""
    found = linted(base([device("a")], user))
    assert found.findings == []
    assert found.caveats == [
        "the input does not list ResourceClaimTemplates: whether those that Pods name exist was not judged"
    ]
    assert linted(base([device("a")], user, template("typ"))).caveats == []


def test_only_claims_that_were_written_are_counted() -> None:
    """Claims that the controller has still to make for three Pods are looked at by their template."""
    items = base([device("a")], template("t"), want(request()), *(pod(f"p{n}", template="t") for n in range(3)))
    assert linted(items).checked["ResourceClaim"] == 1


def _nodes(number: int, *models: str) -> list[Object]:
    made = [node(f"n{n}") for n in range(number)]
    devices = [device(f"d{place}", model=model) for place, model in enumerate(models)]
    return [gpu_class(), *made, *(slice_of(f"n{n}", devices) for n in range(number))]


def test_the_one_node_that_can_serve_a_claim_is_found() -> None:
    """A hundred nodes look alike and cannot; the last one differs by the values of an attribute alone."""
    claim = want(request("x"), request("y"), constraints=MATCH)
    last = [node("last"), slice_of("last", [device("d0", model="H100"), device("d1", model="H100")])]
    assert linted([*_nodes(100, "A100", "H100"), *last, claim]).findings == []
    assert [finding.check for finding in linted([*_nodes(100, "A100", "H100"), claim]).findings] == ["match-too-large"]


def test_nodes_that_are_alike_are_tried_once() -> None:
    """A search that fails takes long; on three hundred equal nodes it does not take three hundred times as long."""
    claims = [want(request("x", 3), request("y", count), name=f"c{count}", constraints=MATCH) for count in (2, 3, 4)]
    found = linted([*_nodes(300, *("A100", "H100") * 4), *claims])
    assert {finding.check for finding in found.findings} == {"match-too-large"}
    assert (len(found.findings), found.caveats) == (3, [])
