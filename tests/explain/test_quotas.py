"""Quotas refuse claims as the API server does: by what is asked for, worst case."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.kinds import RESOURCE_CLAIM, convert
from scheduler.api.resource import ResourceClaim
from scheduler.explain.quotas import IMPLICIT, Quotas, claim_usage, other_limits
from tests.explain.clusters import Object, quota, request, want

GPUS, NICS = "gpu.deviceclass.resource.k8s.io/devices", "nic.deviceclass.resource.k8s.io/devices"
COUNT = "count/resourceclaims.resource.k8s.io"


def claim(*requests: Object, name: str = "c", namespace: str = "default") -> ResourceClaim:
    item = want(*requests, name=name)
    item["metadata"] |= {"namespace": namespace, "uid": f"{namespace}-{name}"}
    for one in item["spec"]["devices"]["requests"]:
        for part in one.get("firstAvailable") or [one["exactly"]]:
            part.setdefault("allocationMode", "ExactCount")
    found: ResourceClaim = convert(RESOURCE_CLAIM, item)
    return found


def alternatives(*parts: Object) -> Object:
    return {"name": "any", "firstAvailable": [{"name": f"a{number}", **part} for number, part in enumerate(parts)]}


GPU, NIC = {"deviceClassName": "gpu"}, {"deviceClassName": "nic"}


@pytest.mark.parametrize(
    ("requests", "usage"),
    [
        ([request("a", 2), request("b", 3)], {GPUS: 5}),
        ([request("a", 1, allocationMode="All")], {GPUS: 32}),
        ([request("a", 1, allocationMode="Some")], {GPUS: 0}),
        ([alternatives(GPU | {"count": 4}, GPU | {"count": 2}, NIC | {"count": 1})], {GPUS: 4, NICS: 1}),
        ([alternatives(GPU | {"allocationMode": "All"}), request("b", 1)], {GPUS: 33}),
        ([], {}),
    ],
    ids=["sum", "all", "unknown mode", "worst alternative", "all as alternative", "nothing"],
)
def test_what_a_claim_counts(requests: list[Object], usage: dict[str, int]) -> None:
    """Per class, as kube-apiserver 1.37 charges it."""
    implicit = {IMPLICIT + name.partition(".")[0]: count for name, count in usage.items()}
    assert claim_usage(claim(*requests), {}) == {COUNT: 1, **usage, **implicit}


def test_a_limit_is_told_with_what_is_used() -> None:
    """Of every quota of the namespace, of no other namespace, and only where the claim asks for something."""
    here = [claim(request("a", 3), name="one"), claim(request("a", 9), name="two", namespace="other")]
    quotas = Quotas(
        [
            quota("q1", **{GPUS: ("4", "3"), NICS: ("0", "0")}),
            quota("q2", **{COUNT: ("1", "1"), "pods": ("0", "0")}),
            quota("q3", "other", **{GPUS: ("0", "9")}),
        ],
        here,
        {},
    )
    told = quotas.refusals(claim(request("a", 2)), here)
    assert [one.words() for one in told] == [
        f"ResourceQuota default/q1: {GPUS}: 2 asked, 3 of 4 used",
        f"ResourceQuota default/q2: {COUNT}: 1 asked, 1 of 1 used",
    ]
    assert quotas.refusals(claim(request("a", 1), namespace="third"), here) == []


def test_use_that_the_input_does_not_show_counts_on() -> None:
    """And what is deleted or made in the imagination is counted off and on."""
    one, two = claim(request("a", 1), name="one"), claim(request("a", 1), name="two")
    quotas = Quotas([quota("q", **{GPUS: ("4", "3")})], [one], {})
    asked = claim(request("a", 2))
    assert [told.used for told in quotas.refusals(asked, [one])] == [3]
    assert quotas.refusals(asked, []) == []
    assert [told.used for told in quotas.refusals(asked, [one, two])] == [4]
    quotas.put(quota("q", **{GPUS: ("6", "0")}))
    assert [told.words() for told in quotas.refusals(claim(request("a", 3)), [one, two])] == [
        f"ResourceQuota default/q: {GPUS}: 3 asked, 4 of 6 used"
    ]
    assert quotas.refusals(asked, [one, two]) == []


@pytest.mark.parametrize(
    "odd",
    [{}, {"spec": None}, {"spec": {"hard": {GPUS: "many"}}}, {"status": {"hard": []}}, {"metadata": 3},
     {"spec": {"hard": {GPUS: None}}}, {"spec": {"hard": {GPUS: {"a": 1}}}}],
)  # fmt: skip
def test_a_quota_that_cannot_be_read_limits_nothing(odd: Any) -> None:
    """It is no reason to end."""
    assert Quotas([odd], [], {}).refusals(claim(request("a", 1)), []) == []


def test_quotas_with_scopes_do_not_speak_of_claims() -> None:
    """kube-apiserver matches claims with no scope."""
    for scope in ({"scopes": ["BestEffort"]}, {"scopeSelector": {"matchExpressions": [{"operator": "Exists"}]}}):
        item = quota("q", **{GPUS: ("0", "0")})
        item["spec"] |= scope
        assert Quotas([item], [], {}).refusals(claim(request("a", 1)), []) == []


def test_names_of_extended_resources_count_where_a_class_has_one() -> None:
    """Both the implicit and its own; a quota of nothing but an unknown name does not speak of claims."""
    asked, named = claim(request("a", 2)), {"gpu": "example.com/gpu"}
    for resource in (f"{IMPLICIT}gpu", "requests.example.com/gpu"):
        item = quota("q", **{resource: ("1", "0")})
        assert [one.resource for one in Quotas([item], [], named).refusals(asked, [])] == [resource]
        assert Quotas([item], [], {}).refusals(asked, []) == []
    beside = quota("q", **{COUNT: ("9", "0"), f"{IMPLICIT}gpu": ("1", "0")})
    assert len(Quotas([beside], [], {}).refusals(asked, [])) == 1


def test_fractions_are_not_given_away() -> None:
    """Half a device is none."""
    item = quota("q", **{GPUS: ("1500m", "500m")})
    assert [one.limit for one in Quotas([item], [], {}).refusals(claim(request("a", 1)), [])] == [1]
    assert other_limits(quota("q", **{GPUS: ("1", "0"), COUNT: ("1", "0"), "pods": ("1", "0")})) == ["pods"]
