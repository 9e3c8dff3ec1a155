"""The last look at a node: does it still hold the Pod that is counted there already?"""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.core import Node, Pod
from scheduler.api.kinds import NODE, POD, convert
from scheduler.state.nodes import NodeTable
from scheduler.state.overcommit import overcommitted
from scheduler.state.podinfo import pod_info


def node(**allocatable: str) -> Node:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "3", **allocatable}
    found: Node = convert(NODE, {"metadata": {"name": "n", "uid": "n"}, "status": {"allocatable": amounts}})
    return found


def pod(name: str, requests: dict[str, str] | None = None, ports: list[dict[str, Any]] | None = None) -> Pod:
    container = {"name": "c", "resources": {"requests": requests or {}}, "ports": ports or []}
    item = {"metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}}
    found: Pod = convert(POD, item)
    return found


def look(of: Node, ours: Pod, *others: Pod) -> str:
    table = NodeTable()
    table.add(of)
    for found in (ours, *others):
        table.add_pod(pod_info(found), "n")
    return overcommitted(table, table.row_with_pods("n"), pod_info(ours))


def test_exactly_full_is_not_too_full() -> None:
    """The last unit may be used."""
    assert look(node(), pod("a", {"cpu": "2"}), pod("b", {"cpu": "2"})) == ""
    assert look(node(), pod("a"), pod("b"), pod("c")) == ""


@pytest.mark.parametrize(
    ("requests", "text"),
    [
        ({"cpu": "3"}, "Insufficient cpu"),
        ({"memory": "5Gi"}, "Insufficient memory"),
        ({"example.com/x": "2"}, "Insufficient example.com/x"),
    ],
)
def test_each_amount_the_pod_asks_for_counts(requests: dict[str, str], text: str) -> None:
    """One more Pod than fits: the reason is NodeResourcesFit's."""
    assert look(node(**{"example.com/x": "3"}), pod("a", requests), pod("b", requests)) == text


def test_too_many_pods() -> None:
    """The number of Pods is an amount, too."""
    assert look(node(), pod("a"), pod("b"), pod("c"), pod("d")) == "Too many pods"


def test_what_the_pod_does_not_ask_for_is_not_its_fault() -> None:
    """The node is overfull in memory, ours wants cpu only."""
    assert look(node(), pod("a", {"cpu": "1"}), pod("b", {"memory": "9Gi"})) == ""


def test_an_extended_resource_the_node_does_not_have_was_not_counted_by_the_decision() -> None:
    """Devices serve it, or the profile ignores it."""
    assert look(node(), pod("a", {"example.com/x": "1"})) == ""
    assert look(node(cpu="0"), pod("a", {"cpu": "1"})) == "Insufficient cpu"


PORT = {"containerPort": 80, "hostPort": 80}


@pytest.mark.parametrize(
    ("one", "other", "free"),
    [
        ({}, {}, False),
        ({"protocol": "UDP"}, {}, True),
        ({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"}, True),
        ({"hostIP": "10.0.0.1"}, {"hostIP": "0.0.0.0"}, False),
        ({"hostPort": 81}, {}, True),
    ],
)
def test_host_ports(one: dict[str, Any], other: dict[str, Any], free: bool) -> None:
    """Same protocol and port on addresses that meet."""
    text = look(node(), pod("a", ports=[PORT | one]), pod("b", ports=[PORT | other]))
    assert text == ("" if free else "node(s) didn't have free ports for the requested pod ports")


def test_a_pod_does_not_stand_in_its_own_way() -> None:
    """Counted under a newer object of the same Pod, its port is still its own."""
    table = NodeTable()
    table.add(node())
    table.add_pod(pod_info(pod("a", ports=[PORT])), "n")
    assert overcommitted(table, table.row_with_pods("n"), pod_info(pod("a", ports=[PORT]))) == ""
