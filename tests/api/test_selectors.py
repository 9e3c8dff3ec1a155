"""Label and node selectors (spec 3.6)."""

from __future__ import annotations

import pytest

from scheduler.api.selectors import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    SelectorError,
    check_field_requirement,
    check_node_requirement,
    check_node_selector,
    label_selector_matches,
    node_selector_matches,
    requirement_matches,
    term_matches,
)

LABELS = {"disk": "ssd", "rank": "10", "text": "x"}


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("disk", "In", ("hdd", "ssd"), True),
        ("disk", "In", ("hdd",), False),
        ("absent", "In", ("ssd",), False),
        ("disk", "NotIn", ("hdd",), True),
        ("disk", "NotIn", ("ssd",), False),
        ("absent", "NotIn", ("ssd",), True),
        ("disk", "Exists", (), True),
        ("absent", "Exists", (), False),
        ("disk", "DoesNotExist", (), False),
        ("absent", "DoesNotExist", (), True),
        ("rank", "Gt", ("9",), True),
        ("rank", "Gt", ("10",), False),
        ("rank", "Lt", ("11",), True),
        ("absent", "Lt", ("11",), False),
        ("text", "Gt", ("1",), False),
        ("rank", "Gt", ("9.5",), False),
        ("rank", "Gt", ("9223372036854775808",), False),
        ("rank", "Gt", ("9" * 5000,), False),
        ("rank", "Gt", ("-" + "9" * 5000,), False),
        ("rank", "Gt", ("0" * 5000 + "9",), True),
        ("rank", "Gt", ("+9",), True),
        ("rank", "Lt", ("-9223372036854775808",), False),
        ("rank", "Gt", ("-9223372036854775808",), True),
        ("rank", "Almost", ("10",), False),
    ],
)
def test_requirement(key: str, operator: str, values: tuple[str, ...], expected: bool) -> None:
    """Each operator on a present, an absent and an unparsable label."""
    assert requirement_matches(Requirement(key, operator, values), LABELS) is expected


def test_label_selector_none_and_empty() -> None:
    """No selector matches nothing, an empty one everything, both parts must agree otherwise."""
    assert not label_selector_matches(None, LABELS)
    assert label_selector_matches(LabelSelector(), LABELS)
    both = LabelSelector({"disk": "ssd"}, (Requirement("rank", "Exists"),))
    assert label_selector_matches(both, LABELS)
    assert not label_selector_matches(both, {"disk": "ssd"})


def test_empty_terms_match_nothing() -> None:
    """A term without requirements and a selector without terms match no node."""
    assert not term_matches(NodeSelectorTerm(), "n", LABELS)
    assert not node_selector_matches(NodeSelector(), "n", LABELS)


def test_terms_are_alternatives_and_bad_ones_do_not_match() -> None:
    """An unparsable term is passed over, another may still match."""
    bad = NodeSelectorTerm((Requirement("disk", "In", ()),))
    good = NodeSelectorTerm((Requirement("disk", "Exists"),), (Requirement("metadata.name", "In", ("n",)),))
    assert not term_matches(bad, "n", LABELS)
    assert node_selector_matches(NodeSelector((bad, good)), "n", LABELS)
    assert not node_selector_matches(NodeSelector((bad, good)), "other", LABELS)
    with pytest.raises(SelectorError):
        check_node_selector(NodeSelector((bad, good)))


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        (Requirement("k", "In", ()), "values set can't be empty"),
        (Requirement("k", "Exists", ("v",)), "values set must be empty"),
        (Requirement("k", "Gt", ("1", "2")), "exactly one value is required"),
        (Requirement("k", "Gt", ("x",)), "the value must be an integer"),
        (Requirement("k", "Like", ("x",)), "not a valid selector operator"),
    ],
)
def test_bad_label_requirements(requirement: Requirement, text: str) -> None:
    """What upstream refuses to parse is refused with its reason."""
    with pytest.raises(SelectorError, match=text):
        check_node_requirement(requirement)


@pytest.mark.parametrize(
    "requirement",
    [
        Requirement("metadata.name", "Exists"),
        Requirement("metadata.name", "In", ("a", "b")),
        Requirement("metadata.uid", "In", ("a",)),
    ],
)
def test_bad_field_requirements(requirement: Requirement) -> None:
    """matchFields knows metadata.name with In or NotIn and one value, nothing else."""
    with pytest.raises(SelectorError):
        check_field_requirement(requirement)
