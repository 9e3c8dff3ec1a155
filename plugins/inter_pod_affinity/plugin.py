"""The plugin: extension points and wake-up rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from plugins.base import CONTINUE, SKIP_FILTER, PluginBase
from plugins.inter_pod_affinity.because import Blame
from plugins.inter_pod_affinity.filtering import NO_LABELS, RequiredTerms
from plugins.inter_pod_affinity.scoring import Preferences, normalized
from scheduler.api.core import Node, Pod
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.plugin import Handle, PreFilterResult, Rows, Scores, Verdicts
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, VerdictTable, error, unresolvable
from scheduler.state.nodes import NodeTable
from scheduler.state.podinfo import PodInfo
from scheduler.state.topology_terms import AffinityTerm, TermKind, pod_terms

_REPELLING = (TermKind.REQUIRED_ANTI_AFFINITY,)
_ATTRACTING = (TermKind.REQUIRED_AFFINITY, TermKind.PREFERRED_AFFINITY, TermKind.PREFERRED_ANTI_AFFINITY)


class InterPodAffinity(PluginBase):
    """Source: kube-scheduler 1.37, InterPodAffinity (spec 3.12).

    Arguments: ``hardPodAffinityWeight`` and ``ignorePreferredTermsOfExistingPods``.
    """

    name = "InterPodAffinity"

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self._required_weight = int(handle.arguments.get("hardPodAffinityWeight", 1))
        self._own_only = bool(handle.arguments.get("ignorePreferredTermsOfExistingPods", False))
        self.verdicts = VerdictTable(self.name)
        self._no_affinity = self.verdicts.intern(
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("node(s) didn't match pod affinity rules",)
        )
        self._anti = self.verdicts.intern(Code.UNSCHEDULABLE, ("node(s) didn't match pod anti-affinity rules",))
        reason = "node(s) didn't satisfy existing pods anti-affinity rules"
        self._repelled = self.verdicts.intern(Code.UNSCHEDULABLE, (reason,))

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Skips Pods without required terms that nobody on a node repels."""
        terms = pod_terms(cycle.pod)
        if terms.problem:
            return PreFilterResult(unresolvable(f"parsing pod: {terms.problem}"))
        own = terms[TermKind.REQUIRED_AFFINITY] or terms[TermKind.REQUIRED_ANTI_AFFINITY]
        if not own and not cycle.state.topology.terms.any_of(_REPELLING):
            return SKIP_FILTER
        required = RequiredTerms.count(cycle.pod, cycle.state)
        if not required.affinity and not required.anti_affinity and not required.repelled:
            return SKIP_FILTER
        cycle.data[self.name] = required
        return CONTINUE

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """Own affinity first, then own anti-affinity, then that of Pods on nodes."""
        required: RequiredTerms = cycle.data[self.name]
        verdicts = np.where(required.repelled_rows(rows), self._repelled, 0)
        verdicts = np.where(required.anti_affinity_broken(rows), self._anti, verdicts)
        return np.where(required.affinity_unmet(nodes, rows), self._no_affinity, verdicts)

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterable[Because]:
        """The terms that refuse, and Pods that are to blame. Cost: the Pods of a domain, once per term and domain."""
        known = cycle.data.setdefault(f"{self.name}/blame", {})
        return Blame(cycle.data[self.name], nodes, known).because(row)

    def add_pod(self, cycle: Cycle, info: PodInfo, row: int) -> None:
        """Pretend that a Pod is on ``row``, for this attempt only."""
        cycle.data[self.name].change(info, row, 1)

    def remove_pod(self, cycle: Cycle, info: PodInfo, row: int) -> None:
        """Pretend that a Pod left ``row``, for this attempt only."""
        cycle.data[self.name].change(info, row, -1)

    def pre_score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Status:
        """Skips when no preference applies anywhere."""
        terms = pod_terms(cycle.pod)
        own = terms[TermKind.PREFERRED_AFFINITY] or terms[TermKind.PREFERRED_ANTI_AFFINITY]
        if self._own_only and not own:
            return SKIP
        if terms.problem:
            return error(f"parsing pod: {terms.problem}")
        if not own and not cycle.state.topology.terms.any_of(_ATTRACTING):
            return SKIP
        preferences = Preferences(cycle.pod, cycle.state, self._required_weight)
        if not preferences.touched:
            return SKIP
        cycle.data[f"{self.name}/score"] = preferences
        return SUCCESS

    def score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        """Sum of the weights of the pairs of the node's labels; may be negative."""
        preferences: Preferences = cycle.data[f"{self.name}/score"]
        return preferences.scores(rows)

    def normalize(self, cycle: Cycle, nodes: NodeTable, rows: Rows, scores: Scores) -> Scores:
        """The smallest becomes 0, the largest 100."""
        return normalized(scores)

    def events(self) -> Sequence[Registration]:
        """Pods came, went or changed; the Pod was relabelled; nodes came or changed domains."""
        pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
        return (
            Registration(Resource.ASSIGNED_POD, pods, _other_changed),
            Registration(Resource.TARGET_POD, Action.UPDATE_POD_LABEL),
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, _domain_changed),
        )


def _names(term: AffinityTerm, pod: Pod) -> bool:
    """True when ``term`` speaks of ``pod``; labels of namespaces are not known to hints (spec 4.8)."""
    return term.matches(pod.metadata.namespace, pod.metadata.labels, NO_LABELS)


def _names_all(terms: Sequence[AffinityTerm], pod: Pod) -> bool:
    return bool(terms) and all(_names(term, pod) for term in terms)


def _other_changed(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    other = new or old
    if other is None or not (other.spec.nodeName or other.status.nominatedNodeName):
        return False
    terms = pod_terms(pod)
    affinity, anti = terms[TermKind.REQUIRED_AFFINITY], terms[TermKind.REQUIRED_ANTI_AFFINITY]
    if new is not None and old is not None:
        if not _names_all(affinity, old) and _names_all(affinity, new):
            return True
        return any(_names(term, old) and not _names(term, new) for term in anti)
    if new is not None:
        return _names_all(affinity, new)
    assert old is not None
    repelled = any(_names(term, pod) for term in pod_terms(old)[TermKind.REQUIRED_ANTI_AFFINITY])
    return repelled or any(_names(term, old) for term in anti)


def _domain_changed(pod: Pod, old: Node | None, new: Node) -> bool:
    """A Pod without required terms of its own was repelled by others, whose keys are not known here."""
    terms = pod_terms(pod)
    affinity, anti = terms[TermKind.REQUIRED_AFFINITY], terms[TermKind.REQUIRED_ANTI_AFFINITY]
    if not affinity and not anti:
        return True
    after = new.metadata.labels
    if old is None:
        return bool(anti) or any(term.topology_key in after for term in affinity)
    before = old.metadata.labels
    if any(
        term.topology_key in after and before.get(term.topology_key) != after[term.topology_key] for term in affinity
    ):
        return True
    return any(
        term.topology_key in before and before[term.topology_key] != after.get(term.topology_key) for term in anti
    )
