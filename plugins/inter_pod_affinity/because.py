"""Which required term keeps a Pod off a node, and which Pods are to blame."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import islice

from plugins.inter_pod_affinity.filtering import NO_LABELS, RequiredTerms
from scheduler.api.core import Pod
from scheduler.framework.because import Because
from scheduler.state.nodes import NodeTable
from scheduler.state.topology_terms import Condition, Requirements, TermKind, pod_terms

PODS_SHOWN = 3
Known = dict[Hashable, tuple[str, ...]]
"""(what was asked, domain) → names of Pods, so that nodes of one domain are answered once."""


class Blame:
    """Looks for the Pods behind refusals; answers are kept in ``known`` for the attempt."""

    def __init__(self, terms: RequiredTerms, nodes: NodeTable, known: Known) -> None:
        self._terms, self._nodes, self._known = terms, nodes, known

    def because(self, row: int) -> Iterator[Because]:
        """Own affinity first, then own anti-affinity, then that of others: the order of the filter."""
        yield from self._affinity(row)
        for number, term in enumerate(self._terms.anti_affinity):
            blamed = self._pods_in(term.topology_key, row, term.condition, _holds(term.condition))
            if blamed:
                about = f"anti-affinity term {number} on {term.topology_key}"
                yield _told(
                    about, f"{about}: {_domain(self._value(term.topology_key, row))} has", blamed, term.condition
                )
        yield from self._repelled(row)

    def _affinity(self, row: int) -> Iterator[Because]:
        terms = self._terms
        own = terms.pod.metadata
        first = not terms.near and terms.all_affinity().holds(own.namespace, own.labels, deleting=False)
        for number, term in enumerate(terms.affinity):
            about = f"affinity term {number} on {term.topology_key}"
            facts = {"topologyKey": term.topology_key, "selector": selector_words(term.condition.selector)}
            value = self._value(term.topology_key, row)
            if value is None:
                yield Because(about, f"{about}: the node has no such label", facts)
            elif not first and not self._near(term.topology_key, row):
                text = f"{about}: no Pod with {facts['selector']} in {value}"
                yield Because(about, text, facts | {"domain": value})

    def _near(self, key: str, row: int) -> bool:
        code = self._nodes.labels(key).codes[row]
        rows = self._nodes.order()
        here = rows[self._nodes.labels(key).codes[rows] == code]
        return bool((self._terms.near.at(key, here) > 0).any())

    def _repelled(self, row: int) -> Iterator[Because]:
        own, labels = self._terms.pod.metadata, self._terms.namespace_labels

        def repels(key: str) -> Callable[[Pod], bool]:
            def asked(other: Pod) -> bool:
                found = pod_terms(other)[TermKind.REQUIRED_ANTI_AFFINITY]
                return any(t.topology_key == key and t.matches(own.namespace, own.labels, labels) for t in found)

            return asked

        for key in self._terms.repelled:
            blamed = self._pods_in(key, row, "repels", repels(key))
            if blamed:
                about = f"anti-affinity of other Pods on {key}"
                facts = {"topologyKey": key, "pods": ", ".join(blamed)}
                text = (
                    f"{about}: {_domain(self._value(key, row))} has {_names(blamed)}, which do not want this Pod near"
                )
                yield Because(about, text, facts)

    def _pods_in(self, key: str, row: int, asked: Hashable, holds: Callable[[Pod], bool]) -> tuple[str, ...]:
        """The first Pods of the row's domain for which it holds."""
        column = self._nodes.labels(key)
        code = int(column.codes[row])
        if code < 0:
            return ()
        found = self._known.get((key, code, asked))
        if found is None:
            rows = self._nodes.order()
            here = rows[column.codes[rows] == code].tolist()
            pods = (info.pod for one in here for info in self._nodes.pods(one))
            found = tuple(islice((pod.key for pod in pods if holds(pod)), PODS_SHOWN + 1))
            self._known[key, code, asked] = found
        return found

    def _value(self, key: str, row: int) -> str | None:
        return self._nodes.node(row).metadata.labels.get(key)


def _holds(condition: Condition) -> Callable[[Pod], bool]:
    return lambda pod: condition.holds(pod.metadata.namespace, pod.metadata.labels or NO_LABELS)


def _told(about: str, start: str, blamed: tuple[str, ...], condition: Condition) -> Because:
    selector = selector_words(condition.selector)
    facts = {"topologyKey": about.rpartition(" ")[2], "selector": selector, "pods": ", ".join(blamed)}
    return Because(about, f"{start} {_names(blamed)} with {selector}", facts, len(blamed))


def _names(pods: tuple[str, ...]) -> str:
    more = " and more" if len(pods) > PODS_SHOWN else ""
    return f"pod{'' if len(pods) == 1 else 's'} {', '.join(pods[:PODS_SHOWN])}{more}"


def _domain(value: str | None) -> str:
    return value or "the node"


def selector_words(selector: Requirements) -> str:
    """``app=web, tier in (a, b)``; ``any label`` for an empty selector, ``no label`` for none."""
    if selector is None:
        return "no label"
    words = []
    for one in selector:
        if one.operator == "In" and len(one.values) == 1:
            words.append(f"{one.key}={one.values[0]}")
        else:
            words.append(f"{one.key} {one.operator} {', '.join(one.values)}".rstrip())
    return ", ".join(words) or "any label"
