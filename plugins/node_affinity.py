"""NodeAffinity: node selectors and node affinity of the Pod, and what the profile adds to them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec
import numpy as np

from plugins.base import CONTINUE, SKIP_FILTER, PluginBase, default_normalize
from scheduler.api.core import Node, Pod
from scheduler.api.selectors import (
    NodeAffinity as NodeAffinityRules,
)
from scheduler.api.selectors import (
    NodeSelector,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    Requirement,
    SelectorError,
    check_node_selector,
    check_term,
    node_selector_matches,
    requirement_matches,
)
from scheduler.errors import ConfigError
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.plugin import Depends, Handle, PreFilterResult, Rows, Scores, Verdicts
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, VerdictTable, error, unresolvable
from scheduler.state.nodes import NodeTable
from scheduler.state.selection import rows_matching_term, rows_selected, rows_with_labels

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class NodeAffinity(PluginBase):
    """Source: kube-scheduler 1.37, NodeAffinity (spec 3.6). Argument ``addedAffinity``: a v1 NodeAffinity or None."""

    name = "NodeAffinity"
    depends = Depends.NODE
    by_template = True

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        added = handle.arguments.get("addedAffinity") or {}
        try:
            rules = msgspec.convert(added, NodeAffinityRules)
        except msgspec.ValidationError as problem:
            raise ConfigError("addedAffinity", str(problem)) from problem
        self._added = rules.requiredDuringSchedulingIgnoredDuringExecution
        if self._added is not None:
            _parse(f"addedAffinity.{_REQUIRED}", check_node_selector, self._added)
        self._added_preferred = _useful(rules.preferredDuringSchedulingIgnoredDuringExecution)
        for term in self._added_preferred:
            _parse(f"addedAffinity.{_PREFERRED}", check_term, term.preference)
        self.verdicts = VerdictTable(self.name)
        unresolvable_code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        enforced = "node(s) didn't match scheduler-enforced node affinity"
        self._not_enforced = self.verdicts.intern(unresolvable_code, (enforced,))
        own = "node(s) didn't match Pod's node affinity/selector"
        self._not_own = self.verdicts.intern(unresolvable_code, (own,))

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Skips Pods without rules; limits the search when every term names its nodes."""
        required = _required(cycle.pod)
        if required is None and cycle.pod.spec.nodeSelector is None and self._added is None:
            return SKIP_FILTER
        names = None if required is None else named_nodes(required)
        if names is None:
            return CONTINUE
        if not names:
            return PreFilterResult(unresolvable("pod affinity terms conflict"))
        return PreFilterResult(SUCCESS, names)

    def signature(self, cycle: Cycle) -> Hashable | None:
        """The rules as they are written."""
        spec = cycle.pod.spec
        rules = spec.affinity.nodeAffinity if spec.affinity is not None else None
        if rules is None and spec.nodeSelector is None:
            return b""
        return msgspec.json.encode((rules, spec.nodeSelector))

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """The profile's rules first, then the Pod's; a term that cannot be parsed matches nothing."""
        own = rows_with_labels(nodes, rows, cycle.pod.spec.nodeSelector or {})
        required = _required(cycle.pod)
        if required is not None:
            own &= rows_selected(nodes, rows, required)
        verdicts = np.where(own, 0, self._not_own)
        if self._added is not None:
            verdicts = np.where(rows_selected(nodes, rows, self._added), verdicts, self._not_enforced)
        return verdicts

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterator[Because]:
        """Labels of nodeSelector that differ; of affinity the requirements that fail in the term that fails least."""
        node = nodes.node(row)
        for key, value in (cycle.pod.spec.nodeSelector or {}).items():
            if node.metadata.labels.get(key) != value:
                yield _unlike(f"nodeSelector {key}={value}", key, value, node)
        for origin, required in (("affinity", _required(cycle.pod)), ("addedAffinity of the profile", self._added)):
            if required is None or node_selector_matches(required, node.name, node.metadata.labels):
                continue
            failing = [_failing(term, node) for term in required.nodeSelectorTerms]
            number, least = min(enumerate(failing), key=lambda entry: len(entry[1]), default=(0, []))
            for field in least:
                about = f"{origin} term {number}: {_words(field)}"
                yield _unlike(about, field.key, ", ".join(field.values), node, len(least))
            if not least:
                yield Because(origin, f"{origin} has no term that can match a node")

    def pre_score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Status:
        """Skips Pods without preferences; a preference that cannot be parsed is an error."""
        preferred = _preferred(cycle.pod)
        if not preferred and not self._added_preferred:
            return SKIP
        for term in _useful(preferred):
            try:
                check_term(term.preference)
            except SelectorError as problem:
                return error(f"spec.affinity.nodeAffinity.{_PREFERRED}: {problem}")
        return SUCCESS

    def score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        """Sum of the weights of matching preferences."""
        total = np.zeros(len(rows), np.int64)
        for term in (*self._added_preferred, *_useful(_preferred(cycle.pod))):
            total += rows_matching_term(nodes, rows, term.preference) * np.int64(term.weight)
        return total

    def normalize(self, cycle: Cycle, nodes: NodeTable, rows: Rows, scores: Scores) -> Scores:
        """The largest sum becomes 100."""
        return default_normalize(scores)

    def events(self) -> Sequence[Registration]:
        """A node came, or its labels changed."""
        return (Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, self._matches_now),)

    def _matches_now(self, pod: Pod, old: Node | None, new: Node) -> bool:
        if self._added is not None and not node_selector_matches(self._added, new.name, new.metadata.labels):
            return False
        return required_matches(pod, new) and (old is None or not required_matches(pod, old))


def required_matches(pod: Pod, node: Node) -> bool:
    """True when ``node`` satisfies the Pod's nodeSelector and required node affinity."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in (pod.spec.nodeSelector or {}).items()):
        return False
    required = _required(pod)
    return required is None or node_selector_matches(required, node.name, labels)


def named_nodes(selector: NodeSelector) -> frozenset[str] | None:
    """Node names to which ``selector`` limits itself; None unless every term names some. Empty: terms conflict."""
    if not selector.nodeSelectorTerms:
        return None
    names: set[str] = set()
    for term in selector.nodeSelectorTerms:
        of_term = _names_of_term(term)
        if of_term is None:
            return None
        names |= of_term
    return frozenset(names)


def _names_of_term(term: NodeSelectorTerm) -> frozenset[str] | None:
    sets = [frozenset(r.values) for r in term.matchFields if r.key == "metadata.name" and r.operator == "In"]
    return reduce(frozenset.__and__, sets) if sets else None


def _required(pod: Pod) -> NodeSelector | None:
    affinity = pod.spec.affinity
    rules = affinity.nodeAffinity if affinity is not None else None
    return rules.requiredDuringSchedulingIgnoredDuringExecution if rules is not None else None


def _preferred(pod: Pod) -> tuple[PreferredSchedulingTerm, ...]:
    affinity = pod.spec.affinity
    rules = affinity.nodeAffinity if affinity is not None else None
    return rules.preferredDuringSchedulingIgnoredDuringExecution if rules is not None else ()


def _useful(terms: Sequence[PreferredSchedulingTerm]) -> tuple[PreferredSchedulingTerm, ...]:
    """Terms of weight 0 or without content count for nothing."""
    return tuple(t for t in terms if t.weight and (t.preference.matchExpressions or t.preference.matchFields))


def _parse(path: str, check: Callable[[Any], None], selector: object) -> None:
    try:
        check(selector)
    except SelectorError as problem:
        raise ConfigError(path, str(problem)) from problem


def _failing(term: NodeSelectorTerm, node: Node) -> list[Requirement]:
    """The requirements of a term that the node does not meet."""
    fields = {"metadata.name": node.name}
    failed = [one for one in term.matchExpressions if not _meets(one, node.metadata.labels)]
    return failed + [one for one in term.matchFields if not _meets(one, fields)]


def _meets(requirement: Requirement, values: Mapping[str, str]) -> bool:
    try:
        return requirement_matches(requirement, values)
    except SelectorError:
        return False


def _words(requirement: Requirement) -> str:
    return f"{requirement.key} {requirement.operator} {', '.join(requirement.values)}".rstrip()


def _unlike(about: str, key: str, wanted: str, node: Node, short: int = 1) -> Because:
    found = node.name if key == "metadata.name" else node.metadata.labels.get(key)
    here = "the node has no such label" if found is None else f"the node has {found}"
    return Because(about, f"{about}; {here}", {"key": key, "wanted": wanted, "found": found or ""}, short)
