"""Hints carried out by hand on the objects of a situation: what a user would edit, delete or add."""

from __future__ import annotations

import copy
import re
from typing import Any

from scheduler.explain.facts import Hint
from tests.explain.clusters import Object

HARD = "DoNotSchedule"


def changed(items: list[Object], hint: Hint) -> list[Object]:
    """The objects after the change that the hint tells, from its kind, subject and sentence alone."""
    made = copy.deepcopy(items)
    return _CHANGES[hint.change](made, hint.subject, hint.text)


def _named(items: list[Object], kind: str, key: str) -> Object:
    namespace, _, name = key.rpartition("/")
    return next(
        item
        for item in items
        if item["kind"] == kind
        and item["metadata"]["name"] == name
        and (not namespace or item["metadata"].get("namespace", "default") == namespace)
    )


def _asked(items: list[Object], claim: str, request: str) -> Any:
    first, _, second = request.partition("/")
    requests = _named(items, "ResourceClaim", claim)["spec"]["devices"]["requests"]
    found = next(one for one in requests if one["name"] == first)
    return next(one for one in found["firstAvailable"] if one["name"] == second) if second else found["exactly"]


def _pod(items: list[Object]) -> Any:
    return _named(items, "Pod", "p")["spec"]


def _use_class(items: list[Object], subject: str, text: str) -> list[Object]:
    claim, request, name = subject.split()
    _asked(items, claim, request)["deviceClassName"] = name
    return items


def _drop_selector(items: list[Object], subject: str, text: str) -> list[Object]:
    claim, request, number = subject.split()
    del _asked(items, claim, request)["selectors"][int(number.removeprefix("#"))]
    return items


def _guard(items: list[Object], subject: str, text: str) -> list[Object]:
    claim, request, number = subject.split()
    selector = _asked(items, claim, request)["selectors"][int(number.removeprefix("#"))]["cel"]
    guard = re.fullmatch(r"write (.*) && before selector .*", text)
    assert guard is not None
    selector["expression"] = f"{guard[1]} && ({selector['expression']})"
    return items


def _toleration(taint: str) -> Object:
    rest, _, effect = taint.rpartition(":")
    key, _, value = rest.partition("=")
    return {"key": key, "operator": "Equal", "value": value, "effect": effect}


def _tolerate_device(items: list[Object], subject: str, text: str) -> list[Object]:
    claim, request, taint = subject.split()
    _asked(items, claim, request).setdefault("tolerations", []).append(_toleration(taint))
    return items


def _tolerate_node(items: list[Object], subject: str, text: str) -> list[Object]:
    _pod(items).setdefault("tolerations", []).append(_toleration(subject))
    return items


def _fewer(items: list[Object], subject: str, text: str) -> list[Object]:
    claim, request, count = subject.split()
    _asked(items, claim, request).update(count=int(count), allocationMode="ExactCount")
    return items


def _less_capacity(items: list[Object], subject: str, text: str) -> list[Object]:
    claim, request, capacity, amount = subject.split()
    _asked(items, claim, request)["capacity"]["requests"][capacity] = amount
    return items


def _drop_constraint(items: list[Object], subject: str, text: str) -> list[Object]:
    claim, number = subject.split()
    del _named(items, "ResourceClaim", claim)["spec"]["devices"]["constraints"][int(number.removeprefix("#"))]
    return items


def _drop_label(items: list[Object], subject: str, text: str) -> list[Object]:
    del _pod(items)["nodeSelector"][subject]
    return items


def _drop_node_rule(items: list[Object], subject: str, text: str) -> list[Object]:
    number, key = subject.split()
    rules = _pod(items)["affinity"]["nodeAffinity"]
    terms = rules["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    term = terms[int(number)]
    for part in ("matchExpressions", "matchFields"):
        term[part] = [rule for rule in term.get(part, []) if rule["key"] != key]
    if not any(term.values()):
        del rules["requiredDuringSchedulingIgnoredDuringExecution"]
    return items


def _ask_for_less(items: list[Object], subject: str, text: str) -> list[Object]:
    container, resource, amount = subject.split()
    found = next(one for one in _pod(items)["containers"] if one["name"] == container)
    found["resources"]["requests"][resource] = amount
    return items


def _hard(items: list[Object], number: str) -> tuple[list[Object], int]:
    constraints = _pod(items)["topologySpreadConstraints"]
    hard = [place for place, one in enumerate(constraints) if one["whenUnsatisfiable"] == HARD]
    return constraints, hard[int(number)]


def _allow_skew(items: list[Object], subject: str, text: str) -> list[Object]:
    number, skew = subject.split()
    constraints, place = _hard(items, number)
    constraints[place]["maxSkew"] = int(skew)
    return items


def _drop_spread(items: list[Object], subject: str, text: str) -> list[Object]:
    constraints, place = _hard(items, subject)
    del constraints[place]
    return items


def _drop_pod_term(items: list[Object], subject: str, text: str) -> list[Object]:
    kind, number = subject.split()
    del _pod(items)["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"][int(number)]
    return items


def _uncordon(items: list[Object], subject: str, text: str) -> list[Object]:
    _named(items, "Node", subject)["spec"]["unschedulable"] = False
    return items


def _remove_gates(items: list[Object], subject: str, text: str) -> list[Object]:
    _pod(items)["schedulingGates"] = []
    return items


def _use_claim(items: list[Object], subject: str, text: str) -> list[Object]:
    entry, claim = subject.split()
    next(one for one in _pod(items)["resourceClaims"] if one["name"] == entry)["resourceClaimName"] = claim
    return items


def _end_claim(items: list[Object], subject: str, text: str) -> list[Object]:
    """The claim goes, and the Pods that it is reserved for."""
    claim = _named(items, "ResourceClaim", subject)
    names = {user["name"] for user in claim.get("status", {}).get("reservedFor", [])}
    namespace = claim["metadata"].get("namespace", "default")
    gone = [
        item
        for item in items
        if item["kind"] == "Pod"
        and item["metadata"]["name"] in names
        and item["metadata"].get("namespace", "default") == namespace
    ]
    return [item for item in items if item is not claim and not any(item is pod for pod in gone)]


def _end_pod(items: list[Object], subject: str, text: str) -> list[Object]:
    pod = _named(items, "Pod", subject)
    return [item for item in items if item is not pod]


def _add_node(items: list[Object], subject: str, text: str) -> list[Object]:
    """A node of another name with the same slices in pools of its own."""
    more = copy.deepcopy(_named(items, "Node", subject))
    more["metadata"]["name"] = f"{subject}-more"
    labels = more["metadata"].get("labels", {})
    if labels.get("kubernetes.io/hostname") == subject:
        labels["kubernetes.io/hostname"] = f"{subject}-more"
    slices = [
        copy.deepcopy(item)
        for item in items
        if item["kind"] == "ResourceSlice" and item["spec"].get("nodeName") == subject
    ]
    for item in slices:
        item["metadata"]["name"] += "-more"
        item["spec"]["nodeName"] = f"{subject}-more"
        item["spec"]["pool"]["name"] += "-more"
    return [*items, more, *slices]


_CHANGES = {
    "use class": _use_class,
    "drop selector": _drop_selector,
    "guard selector": _guard,
    "tolerate device taint": _tolerate_device,
    "tolerate node taint": _tolerate_node,
    "fewer devices": _fewer,
    "less capacity": _less_capacity,
    "drop constraint": _drop_constraint,
    "drop node label": _drop_label,
    "drop node rule": _drop_node_rule,
    "ask for less": _ask_for_less,
    "allow skew": _allow_skew,
    "drop spread": _drop_spread,
    "drop pod term": _drop_pod_term,
    "uncordon": _uncordon,
    "remove gates": _remove_gates,
    "use claim": _use_claim,
    "claim ends": _end_claim,
    "pod ends": _end_pod,
    "add node": _add_node,
}
KINDS_OF_CHANGES = frozenset(_CHANGES)
