"""Counts of Pods by class and of their inter-Pod terms, kept current event by event."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.api.core import Pod
from scheduler.api.kinds import POD, convert
from scheduler.api.selectors import LabelSelector
from scheduler.errors import InternalError
from scheduler.state import topology as topology_module
from scheduler.state.podinfo import PodInfo, pod_info
from scheduler.state.topology import TopologyIndex
from scheduler.state.topology_rows import RowCounts
from scheduler.state.topology_terms import Condition, PodMatch, TermKind, pod_terms, requirements_of

ANYWHERE = Condition(None, ())


def pod(uid: str, labels: dict[str, str] | None = None, namespace: str = "default", **more: Any) -> Pod:
    """A Pod; ``away`` gives it required anti-affinity to an app, ``deleting`` a deletionTimestamp."""
    metadata: dict[str, Any] = {"name": uid, "uid": uid, "namespace": namespace, "labels": labels or {}}
    if more.get("deleting"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec: dict[str, Any] = {}
    if more.get("away"):
        term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": more["away"]}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    found: Pod = convert(POD, {"metadata": metadata, "spec": spec})
    return found


def app(name: str, *namespaces: str, deleting: bool = True) -> PodMatch:
    selector = requirements_of(LabelSelector(matchLabels={"app": name}))
    return PodMatch((Condition(frozenset(namespaces) or None, selector),), deleting)


def rows(index: TopologyIndex, match: PodMatch) -> dict[int, int]:
    counts = index.counts(match, 4)
    return {row: int(counts[row]) for row in np.flatnonzero(counts).tolist()}


def test_counts_follow_pods() -> None:
    """A count asked for once is kept current: Pods that come later, move or leave change it on their row."""
    index = TopologyIndex()
    index.pod_added(pod_info(pod("a", {"app": "web"})), 0)
    assert rows(index, app("web")) == {0: 1}
    index.pod_added(pod_info(pod("b", {"app": "web"})), 0)
    index.pod_added(pod_info(pod("c", {"app": "db"})), 1)
    index.pod_added(pod_info(pod("d", {"app": "web"}, "other")), 300)
    assert rows(index, app("web")) == {0: 2, 300: 1}
    assert rows(index, app("web", "default")) == {0: 2}
    index.pod_added(pod_info(pod("a", {"app": "web"})), 2)
    index.pod_removed(pod_info(pod("b")))
    index.pod_removed(pod_info(pod("never seen")))
    assert rows(index, app("web")) == {2: 1, 300: 1}
    assert rows(index, PodMatch((ANYWHERE,))) == {1: 1, 2: 1, 300: 1}


def test_pods_being_deleted_count_where_asked_for() -> None:
    """Inter-Pod affinity counts Pods being deleted, spread does not."""
    index = TopologyIndex()
    index.pod_added(pod_info(pod("a", {"app": "web"}, deleting=True)), 0)
    assert rows(index, app("web")) == {0: 1}
    assert rows(index, app("web", deleting=False)) == {}


def test_kept_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used count is dropped, no longer maintained, and right again when asked for once more."""
    monkeypatch.setattr(topology_module, "_MATCHES_MAX", 2)
    index = TopologyIndex()
    index.pod_added(pod_info(pod("a", {"app": "web"})), 0)
    dropped = index.counts(app("web"), 4)
    for name in ("x", "y"):
        index.counts(app(name), 4)
    index.pod_added(pod_info(pod("b", {"app": "web"})), 1)
    assert dropped[1] == 0
    assert rows(index, app("web")) == {0: 1, 1: 1}
    index.verify([(pod_info(pod("a", {"app": "web"})), 0), (pod_info(pod("b", {"app": "web"})), 1)])


def test_terms_that_match_a_pod() -> None:
    """Terms of Pods on nodes are found by the Pod they speak of, while at least one Pod has them."""
    index = TopologyIndex()

    def found(name: str) -> list[dict[int, int]]:
        matching = index.terms.matching(TermKind.REQUIRED_ANTI_AFFINITY, "default", {"app": name}, {})
        return [placed.rows.items() for placed in matching]

    first, second = pod_info(pod("a", away="web")), pod_info(pod("b", away="web"))
    index.pod_added(first, 3)
    assert found("web") == [{3: 1}]
    assert found("db") == []
    index.pod_added(second, 3)
    assert found("web") == [{3: 2}]
    index.pod_removed(first)
    index.pod_removed(second)
    assert found("web") == []
    index.pod_added(first, 1)
    assert found("web") == [{1: 1}]


def test_terms_are_filed_where_their_pods_look() -> None:
    """Whatever a term demands or leaves open (label values, namespaces), the Pods it matches find it exactly once."""
    index = TopologyIndex()
    wanted: dict[str, dict[str, Any]] = {
        "values": {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}},
        "everyone": {"labelSelector": {}, "namespaceSelector": {}},
        "absence": {"labelSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}},
        "elsewhere": {"labelSelector": {"matchLabels": {"app": "web"}}, "namespaces": ["other", "third"]},
        "team": {"labelSelector": {"matchLabels": {"app": "web"}}, "namespaceSelector": {"matchLabels": {"t": "1"}}},
        "nobody": {},
    }
    for row, term in enumerate(wanted.values()):
        terms = [term | {"topologyKey": "zone"}]
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        placed = convert(POD, {"metadata": {"name": f"p{row}", "uid": f"p{row}", "namespace": "default"}})
        placed = msgspec.structs.replace(placed, spec=convert(POD, {"spec": {"affinity": affinity}}).spec)
        index.pod_added(pod_info(placed), row)

    def found(namespace: str, labels: dict[str, str], namespace_labels: dict[str, str]) -> list[str]:
        matching = index.terms.matching(TermKind.REQUIRED_ANTI_AFFINITY, namespace, labels, namespace_labels)
        return sorted(list(wanted)[row] for placed in matching for row in placed.rows.items())

    assert found("default", {"app": "web", "x": "1"}, {}) == ["everyone", "values"]
    assert found("default", {"app": "db"}, {}) == ["absence", "everyone", "values"]
    assert found("other", {"app": "web"}, {"t": "1"}) == ["elsewhere", "everyone", "team"]
    assert found("third", {"x": "1"}, {"t": "1"}) == ["everyone"]


def test_verify_names_a_lost_pod() -> None:
    """A Pod that was placed and not reported, or the other way round, does not stay unnoticed."""
    index = TopologyIndex()
    info = pod_info(pod("a", {"app": "web"}))
    index.pod_added(info, 0)
    with pytest.raises(InternalError, match="Pods per class"):
        index.verify([])
    with pytest.raises(InternalError, match="Pods per class"):
        index.verify([(info, 1)])
    index.counts(app("web"), 4)[0] = 7
    with pytest.raises(InternalError, match="differs"):
        index.verify([(info, 0)])


def test_rows_become_a_column() -> None:
    """Counts are the same before and after the step from a mapping to a column."""
    counts = RowCounts()
    for row in range(0, 600, 3):
        counts.add(row, 2)
        counts.add(row, -1)
    for row in range(0, 300, 3):
        counts.add(row, -1)
    assert counts.items() == dict.fromkeys(range(300, 600, 3), 1)
    assert counts.total == 100
    assert counts.add_to(np.zeros(2, np.int64), 5)[300] == 5


def test_terms_are_parsed_once_and_never_raise() -> None:
    """A list with an unparsable term counts as empty and says why; the other lists stand."""
    bad = {"topologyKey": "z", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}
    good = {"topologyKey": "z", "labelSelector": {}}
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    affinity = {"podAffinity": {required: [good, bad], preferred: [{"weight": 3, "podAffinityTerm": good}]}}
    found: Pod = convert(POD, {"metadata": {"name": "p"}, "spec": {"affinity": affinity}})
    terms = pod_terms(found)
    assert terms is pod_terms(found)
    assert terms[TermKind.REQUIRED_AFFINITY] == ()
    assert [term.weight for term in terms[TermKind.PREFERRED_AFFINITY]] == [3]
    assert terms.problem == 'requiredAffinityTerms: "Near" is not a valid label selector operator'


CHANGES = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),
        st.one_of(st.none(), st.integers(0, 90)),
        st.sampled_from(("web", "db")),
        st.sampled_from(("default", "other")),
        st.booleans(),
        st.sampled_from(("", "web", "db")),
    ),
    max_size=40,
)


@settings(max_examples=80, deadline=None)
@given(CHANGES, st.integers(0, 10))
def test_counts_equal_those_made_from_scratch(changes: list[Any], asked_every: int) -> None:
    """After any sequence of Pods coming, moving and leaving, with questions in between, everything held is right."""
    index = TopologyIndex()
    placed: dict[str, tuple[PodInfo, int]] = {}
    for step, (uid, row, name, namespace, deleting, away) in enumerate(changes):
        info = pod_info(pod(uid, {"app": name}, namespace, deleting=deleting, away=away))
        if row is None:
            index.pod_removed(info)
            placed.pop(uid, None)
        else:
            index.pod_added(info, row)
            placed[uid] = (info, row)
        if asked_every and step % asked_every == 0:
            index.counts(app("web", namespace, deleting=deleting), 1)
        index.verify(placed.values())
