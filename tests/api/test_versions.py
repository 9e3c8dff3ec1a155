"""Older versions of resource.k8s.io become the same objects; the newest served one is chosen."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from scheduler.api.bodies import claim_body
from scheduler.api.kinds import RESOURCE_CLAIM, RESOURCE_SLICE, DecodeError, convert
from scheduler.api.resource import ResourceClaim
from scheduler.api.versions import ResourceKinds, choose_kinds, served_plurals, served_versions

ALL = frozenset({"resourceclaims", "resourceslices", "deviceclasses", "resourceclaimtemplates"})
RULES = frozenset({"devicetaintrules"})


def chosen(served: dict[str, frozenset[str]]) -> tuple[str, str]:
    """Versions of claims and of taint rules."""
    kinds = choose_kinds(served)
    assert kinds is not None
    assert kinds.claim.version == kinds.slice.version == kinds.device_class.version
    return kinds.claim.version, kinds.taint_rule.version


BETA1 = choose_kinds({"v1beta1": ALL, "v1alpha3": RULES}) or ResourceKinds()
BETA2 = choose_kinds({"v1beta2": ALL}) or ResourceKinds()


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ({"v1": ALL | RULES, "v1beta2": ALL | RULES, "v1beta1": ALL}, ("v1", "v1")),
        ({"v1": ALL, "v1beta2": RULES}, ("v1", "v1beta2")),
        ({"v1": RULES, "v1beta1": ALL, "v1beta2": ALL}, ("v1beta2", "v1")),
        ({"v1beta1": ALL, "v1alpha3": RULES}, ("v1beta1", "v1alpha3")),
        ({"v1beta1": ALL}, ("v1beta1", "v1")),
    ],
)
def test_the_newest_complete_version_is_chosen(served: dict[str, frozenset[str]], expected: tuple[str, str]) -> None:
    """Claims, slices and classes come from one version, taint rules from the newest that has them."""
    assert chosen(served) == expected


def test_nothing_known_is_nothing() -> None:
    """A server with none of our versions has no kinds for us."""
    assert choose_kinds({"v1alpha3": ALL, "v2": ALL}) is None


def test_discovery_documents_are_read() -> None:
    """Versions in our order whatever the server's, sub-resources left out."""
    group = {"versions": [{"version": "v1alpha3"}, {"version": "v9"}, {"version": "v1beta1"}, {"version": "v1"}]}
    assert served_versions(json.dumps(group).encode()) == ("v1", "v1beta1", "v1alpha3")
    resources = {"resources": [{"name": "resourceclaims"}, {"name": "resourceclaims/status"}]}
    assert served_plurals(json.dumps(resources).encode()) == {"resourceclaims"}


EXACTLY: dict[str, Any] = {
    "deviceClassName": "gpu",
    "selectors": [{"cel": {"expression": "true"}}],
    "allocationMode": "ExactCount",
    "count": 2,
    "adminAccess": True,
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "capacity": {"requests": {"memory": "1Gi"}},
}
LISTED = {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "gpu", "count": 1}]}
STATUS = {
    "allocation": {
        "devices": {"results": [{"request": "a", "driver": "d", "pool": "p", "device": "x", "shareID": "s"}]},
    },
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u", "unknown": 1.50}],
}


def claim(first: dict[str, Any]) -> dict[str, Any]:
    """A claim with two requests."""
    devices = {"requests": [first, LISTED], "constraints": [{"matchAttribute": "d/a"}]}
    return {"metadata": {"name": "c", "namespace": "ns"}, "spec": {"devices": devices}, "status": STATUS}


def test_claims_of_v1beta1_are_the_same_claims() -> None:
    """Flat requests become exactly; lists stay; the status is untouched, unknown fields of consumers included."""
    new: ResourceClaim = convert(RESOURCE_CLAIM, claim({"name": "a", "exactly": EXACTLY}))
    old: ResourceClaim = convert(BETA1.claim, claim({"name": "a", **EXACTLY}))
    assert old.spec == new.spec
    assert old.status == new.status
    assert old.metadata == new.metadata


def test_a_request_of_unknown_kind_stays_unknown() -> None:
    """Without class and list a request of v1beta1 is of a kind that we do not know."""
    old: ResourceClaim = convert(BETA1.claim, claim({"name": "a"}))
    assert old.spec.devices.requests[0].exactly is None
    assert old.spec.devices.requests[0].firstAvailable == ()


def test_slices_of_v1beta1_are_the_same_slices() -> None:
    """Properties under ``basic`` move into the device; everything else stays."""
    fields: dict[str, Any] = {
        "attributes": {"a": {"version": "1.2.3"}},
        "capacity": {"memory": {"value": "1Gi"}},
        "taints": [{"key": "k", "effect": "NoSchedule"}],
        "allowMultipleAllocations": True,
        "bindingConditions": ["ready"],
    }

    def body(device: dict[str, Any]) -> dict[str, Any]:
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
        return {"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": pool, "nodeName": "n", "devices": [device]}}

    new = convert(RESOURCE_SLICE, body({"name": "x", **fields}))
    assert convert(BETA1.slice, body({"name": "x", "basic": fields})).spec == new.spec
    assert convert(BETA2.slice, body({"name": "x", **fields})).spec == new.spec


def test_taint_rules_of_v1alpha3_that_select_more_are_refused() -> None:
    """What v1 cannot say would taint too many devices: the rule is reported, not applied."""
    taint = {"key": "k", "effect": "NoSchedule"}
    rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": {"driver": "d"}, "taint": taint}}
    assert convert(BETA1.taint_rule, rule).spec.deviceSelector.driver == "d"
    rule["spec"]["deviceSelector"] = {"deviceClassName": "gpu"}  # type: ignore[index]  # a literal of nested dicts
    with pytest.raises(DecodeError, match="selecting devices by class or CEL is not supported"):
        convert(BETA1.taint_rule, rule)


@pytest.mark.parametrize("kinds", [ResourceKinds(), BETA2, BETA1])
def test_what_we_create_reads_back_as_what_we_meant(kinds: ResourceKinds) -> None:
    """The body of a creation has the shape of the served version."""
    meant: ResourceClaim = convert(RESOURCE_CLAIM, claim({"name": "a", "exactly": EXACTLY}))
    body = claim_body(kinds.claim, meant, "real")
    sent = msgspec.json.decode(body)
    assert sent["apiVersion"] == f"resource.k8s.io/{kinds.claim.version}"
    assert ("exactly" in sent["spec"]["devices"]["requests"][0]) == (kinds.claim.version != "v1beta1")
    assert convert(kinds.claim, sent).spec == meant.spec
