"""Selectors over columns answer as the same selectors on single nodes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.api.core import Node
from scheduler.api.meta import ObjectMeta
from scheduler.api.selectors import (
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    node_selector_matches,
    requirement_matches,
)
from scheduler.state.nodes import NodeTable
from scheduler.state.selection import rows_matching, rows_selected, rows_with_labels

KEYS = st.sampled_from(["a", "b", "metadata.name"])
VALUES = st.sampled_from(["", "1", "-3", "20", "x", "n0"])
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Odd"])
REQUIREMENTS = st.builds(Requirement, KEYS, OPERATORS, st.lists(VALUES, max_size=3).map(tuple))
TERMS = st.builds(
    NodeSelectorTerm,
    st.lists(REQUIREMENTS, max_size=2).map(tuple),
    st.lists(st.builds(Requirement, KEYS, OPERATORS, st.lists(VALUES, max_size=2).map(tuple)), max_size=1).map(tuple),
)
NODES = st.lists(st.dictionaries(KEYS, VALUES), max_size=6)


def table_of(labels: list[dict[str, str]]) -> NodeTable:
    """Nodes n0, n1, ... with these labels."""
    table = NodeTable()
    for index, own in enumerate(labels):
        table.add(Node(ObjectMeta(name=f"n{index}", labels=own)))
    return table


@settings(max_examples=300, deadline=None)
@given(NODES, REQUIREMENTS, st.lists(TERMS, max_size=3), st.dictionaries(KEYS, VALUES, max_size=2))
def test_columns_agree_with_objects(
    labels: list[dict[str, str]], requirement: Requirement, terms: list[NodeSelectorTerm], wanted: dict[str, str]
) -> None:
    """For any labels and any selector, valid or not, the column answers are those of the objects."""
    table = table_of(labels)
    rows = table.order()
    selector = NodeSelector(tuple(terms))
    objects = [table.node(int(row)) for row in rows]
    assert rows_matching(table, rows, requirement).tolist() == [
        requirement_matches(requirement, node.metadata.labels) for node in objects
    ]
    assert rows_selected(table, rows, selector).tolist() == [
        node_selector_matches(selector, node.name, node.metadata.labels) for node in objects
    ]
    assert rows_with_labels(table, rows, wanted).tolist() == [
        wanted.items() <= node.metadata.labels.items() for node in objects
    ]


def test_codes_follow_changes() -> None:
    """A column asked for once follows label changes, new values and removed nodes."""
    table = table_of([{"a": "1"}, {"a": "2"}])
    exists, high = Requirement("a", "Exists"), Requirement("a", "Gt", ("1",))
    assert rows_matching(table, table.order(), high).tolist() == [False, True]
    table.update(Node(ObjectMeta(name="n0", labels={"a": "7"})))
    table.update(Node(ObjectMeta(name="n1")))
    assert rows_matching(table, table.order(), high).tolist() == [True, False]
    assert rows_matching(table, table.order(), exists).tolist() == [True, False]
    table.remove("n0")
    assert rows_matching(table, table.order(), exists).tolist() == [False]


def test_values_of_gone_nodes_are_forgotten() -> None:
    """Nodes that come and go under ever new names do not let a label column grow without bound."""
    table = NodeTable()
    for index in range(1000):
        table.add(Node(ObjectMeta(name=f"n{index}", labels={"host": f"n{index}"})))
        table.labels("host")
        table.remove(f"n{index}")
    assert len(table.labels("host").values) < 100
