"""``dra-scheduler conformity cel``."""

from __future__ import annotations

import json

from scheduler.cli.conformity_cel import run_cel

DEVICE = {"driver": "d", "attributes": {"n": {"int": 3}, "l": {"ints": [1, 2]}}, "capacity": {"m": {"value": "1Gi"}}}


def answers(*lines: object) -> list[dict[str, object]]:
    """Our answers to cases or raw lines."""
    raw = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return [json.loads(answer) for answer in run_cel(raw)]


def test_values_costs_and_kinds_of_errors() -> None:
    """match and cost where it completes; compile, runtime and cost errors apart, texts as upstream has them."""
    endless = "lists.range(2000).all(x, lists.range(2000).all(y, x + y >= 0))"
    expressions = ('device.attributes["d"].n == 3', "nothing", 'device.attributes["d"].x == 1', endless, "1")
    found = answers(*({"name": "x", "expression": text, "device": DEVICE} for text in expressions))
    assert found[0] == {"name": "x", "match": True, "cost": 5}
    assert [answer.get("error_kind") for answer in found[1:]] == ["compile", "runtime", "cost", "compile"]
    assert found[2]["error"] == "no such key: x"
    assert found[3]["error"] == "operation cancelled: actual cost limit exceeded"
    assert found[4]["error"] == "must evaluate to bool or the unknown type, not int"


def test_capacity_and_lists_are_there() -> None:
    """Quantities compare by value; lists are values whatever the gate says."""
    texts = ('device.capacity["d"].m == quantity("1024Mi")', 'device.attributes["d"].l.sum() == 3')
    for gate in (False, True):
        found = answers(*({"expression": text, "device": DEVICE, "listTypeAttributes": gate} for text in texts))
        assert [answer["match"] for answer in found] == [True, True]


def test_a_broken_line_does_not_end_the_run() -> None:
    """Unknown fields, wrong types, bad quantities and expressions being stored answer input_error; the next is read."""
    bad = {"driver": "d", "capacity": {"m": {"value": "much"}}}
    found = answers(
        '{"name": "a", "expresion": "true"}',
        "nonsense",
        "",
        {"name": "b", "expression": 3},
        {"name": "c", "expression": "true", "device": bad},
        {"name": "d", "expression": "true", "device": DEVICE, "new": True},
        {"name": "e", "expression": "true", "device": DEVICE},
    )
    assert [answer["name"] for answer in found] == ["a", "", "b", "c", "d", "e"]
    assert ["input_error" in answer for answer in found] == [True] * 5 + [False]
