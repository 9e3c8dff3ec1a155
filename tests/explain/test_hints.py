"""Hints are true: after the change the Pod fits. Each kind of hint has its cluster."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.cycle.decision import Placed
from scheduler.explain.attempts import attempt
from scheduler.explain.facts import Hint
from scheduler.explain.hints import OF_A_KIND_MAX
from tests.app.objects import gpu_class, node, pod
from tests.explain.clusters import DRIVER, Object, device, explained, held, request, slice_of, snapshot, want

MODEL = f'device.attributes["{DRIVER}"].model'
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


def base(devices: list[Object], *more: Object) -> list[Object]:
    return [node("n1"), gpu_class(), slice_of("n1", devices), *more, pod("p", claim="want")]


def asked(items: list[Object]) -> Any:
    """The first request of the claim ``want``."""
    claim = next(item for item in items if item["metadata"]["name"] == "want")
    return claim["spec"]["devices"]["requests"][0]["exactly"]


def named(items: list[Object], name: str) -> Object:
    return next(item for item in items if item["metadata"]["name"] == name)


def drop_selector(items: list[Object]) -> None:
    asked(items)["selectors"].pop(1)


def guard(items: list[Object]) -> None:
    selector = asked(items)["selectors"][0]["cel"]
    selector["expression"] = f"has({MODEL}) && ({selector['expression']})"


def fewer(items: list[Object]) -> None:
    asked(items)["count"] = 2


def use_class(items: list[Object]) -> None:
    asked(items)["deviceClassName"] = "gpu"


def tolerate_device(items: list[Object]) -> None:
    asked(items)["tolerations"] = [TAINT | {"operator": "Equal"}]


def tolerate_node(items: list[Object]) -> None:
    named(items, "p")["spec"]["tolerations"] = [TAINT | {"operator": "Equal"}]


def drop_constraint(items: list[Object]) -> None:
    named(items, "want")["spec"]["devices"].pop("constraints")


def drop_label(items: list[Object]) -> None:
    named(items, "p")["spec"]["nodeSelector"].pop("disk")


def end_claim(items: list[Object]) -> None:
    items.remove(named(items, "h"))


def end_pod(items: list[Object]) -> None:
    items.remove(named(items, "other"))


def add_node(items: list[Object]) -> None:
    more = copy.deepcopy([item for item in items if item["metadata"]["name"] in ("n1", "n1-slice")])
    for item in more:
        item["metadata"]["name"] += "-more"
        if item["kind"] == "ResourceSlice":
            item["spec"]["nodeName"] = item["spec"]["pool"]["name"] = "n1-more"
    items.extend(more)


def _tainted() -> Object:
    item = node("n1")
    item["spec"] = {"taints": [TAINT]}
    return item


CASES: list[tuple[str, list[Object], Callable[[list[Object]], None], str]] = [
    (
        "drop selector",
        base([device("a")], want(request("r", 1, "true", f'{MODEL} == "H100"'))),
        drop_selector,
        "drop selector 1 from request r of claim default/want",
    ),
    (
        "guard selector",
        base([{"name": "a"}, device("b")], want(request("r", 1, f'{MODEL} == "A100"'))),
        guard,
        f"write has({MODEL}) && before selector 0 of request r of claim default/want",
    ),
    ("fewer devices", base([device("a"), device("b")], want(request("r", 3))), fewer, "ask for 2 instead of 3 devices"),
    (
        "use class",
        base([device("a")], want(request("r", 1, deviceClassName="gpus"))),
        use_class,
        "ask for class gpu in",
    ),
    (
        "tolerate device taint",
        base([device("a", taints=[TAINT])], want(request())),
        tolerate_device,
        "tolerate device taint team=a:NoSchedule in request r of claim default/want",
    ),
    ("tolerate node taint", [_tainted(), pod("p")], tolerate_node, "let the Pod tolerate node taint team=a:NoSchedule"),
    (
        "drop constraint",
        base(
            [device("a"), device("b", model="H100")],
            want(request("r", 2), constraints=[{"matchAttribute": f"{DRIVER}/model"}]),
        ),
        drop_constraint,
        f"drop constraint 0 (matchAttribute {DRIVER}/model) from claim default/want",
    ),
    (
        "drop node label",
        [node("n1"), pod("p", nodeSelector={"disk": "ssd"})],
        drop_label,
        "drop disk=ssd from the Pod's",
    ),
    (
        "claim ends",
        base([device("a")], held("h", "n1", "a", pod="user"), want(request()), pod("user", claim="h", nodeName="n1")),
        end_claim,
        "it fits when claim default/h (pod default/user, since 2027-01-15T07:00:00Z) ends",
    ),
    (
        "pod ends",
        [node("n1", cpu="2"), pod("other", cpu="1500m", nodeName="n1"), pod("p", cpu="1")],
        end_pod,
        "it fits when pod default/other on node n1 ends",
    ),
    (
        "add node",
        base([device("a")], held("h", "n1", "a"), want(request())),
        add_node,
        "one more node like n1 would do",
    ),
]


@pytest.mark.parametrize(
    ("change", "items", "apply", "text"), CASES, ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_hint_is_told_and_true(
    change: str, items: list[Object], apply: Callable[[list[Object]], None], text: str
) -> None:
    """The hint is there; the same change made by hand in the input lets the Pod go to the node that was told."""
    found, shown = explained(items, hints=True)
    assert found.phase == "waiting"
    hint: Hint = next(hint for hint in found.hints if hint.change == change)
    assert text in hint.text
    assert hint.text in shown
    changed = copy.deepcopy(items)
    apply(changed)
    snap = snapshot(changed)
    waiting = snap.pod("default", "p")
    decision = attempt(snap.profile_for(waiting)[0], waiting, snap.state, snap.now)
    assert isinstance(decision, Placed)
    assert decision.node == hint.node


def test_no_hint_is_told_that_would_not_help() -> None:
    """Two things are wrong at once: no single change helps, so none is told."""
    selectors = request("r", 1, f'{MODEL} == "H100"', "false")
    found, text = explained(base([device("a")], want(selectors)), hints=True)
    assert found.hints == []
    assert "What would help" not in text


def test_hints_stop_when_told_to() -> None:
    """With no time left nothing is tried, and the caller is told that not everything was."""
    from scheduler.explain.hints import find_hints
    from scheduler.explain.pods import explain_pod

    snap = snapshot(base([device("a")], want(request("r", 2))))
    waiting = snap.pod("default", "p")
    profile, _ = snap.profile_for(waiting)
    found = explain_pod(profile, waiting, snap.state, snap.now)
    assert not find_hints(profile, waiting, snap.state, snap.now, found, lambda: False)
    assert found.hints == []


def test_many_hints_of_one_kind_leave_room_for_the_others() -> None:
    """Sixteen nodes whose only device is held: some claims are named, and that one more node would do as well."""
    nodes = [f"n{number}" for number in range(16)]
    items: list[Object] = [gpu_class(), pod("p", claim="want"), want(request())]
    for name in nodes:
        items += [node(name), slice_of(name, [device("a")]), held(f"h-{name}", name, "a", pod=f"u-{name}")]
        items.append(pod(f"u-{name}", claim=f"h-{name}", nodeName=name))
    kinds = [hint.change for hint in explained(items, hints=True)[0].hints]
    assert "add node" in kinds
    assert 1 <= kinds.count("claim ends") <= OF_A_KIND_MAX
