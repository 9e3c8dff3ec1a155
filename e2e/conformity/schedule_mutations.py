"""Seeded faults in what decides about whole attempts: one textual change per rule (see schedule_mutants)."""

from __future__ import annotations

from e2e.conformity.mutations import Mutation

_P = "plugins/"
_SPREAD = _P + "pod_topology_spread/"
_NEAR = _P + "inter_pod_affinity/"
_VOLUMES = _P + "volumes/"

SCHEDULE_MUTATIONS: tuple[Mutation, ...] = (
    # Nodes themselves.
    Mutation(
        "an empty toleration effect tolerates PreferNoSchedule",
        _P + "taint_toleration.py",
        'if t.effect in ("", PREFER_NO_SCHEDULE)]',
        "if t.effect == PREFER_NO_SCHEDULE]",
    ),
    Mutation(
        "fewer intolerable taints score higher",
        _P + "taint_toleration.py",
        "return default_normalize(scores, reverse=True)",
        "return default_normalize(scores)",
    ),
    Mutation(
        "a cordoned node is unresolvable",
        _P + "node_unschedulable.py",
        "Code.UNSCHEDULABLE_AND_UNRESOLVABLE",
        "Code.UNSCHEDULABLE",
    ),
    Mutation("taken ports can be preempted", _P + "node_ports.py", "Code.UNSCHEDULABLE,", "Code(3),"),
    Mutation(
        "node names of several terms add up",
        _P + "node_affinity.py",
        "        names |= of_term\n",
        "        names = set(of_term)\n",
    ),
    Mutation(
        "the enforced affinity speaks before the Pod's own",
        _P + "node_affinity.py",
        "np.where(rows_selected(nodes, rows, self._added), verdicts, self._not_enforced)",
        "np.where(rows_selected(nodes, rows, self._added), verdicts, self._not_own)",
    ),
    Mutation(
        "preferred terms count by weight",
        _P + "node_affinity.py",
        "rows_matching_term(nodes, rows, term.preference) * np.int64(term.weight)",
        "rows_matching_term(nodes, rows, term.preference) * np.int64(1 + term.weight)",
    ),
    Mutation(
        "declared features are needed on the node",
        _P + "node_declared_features.py",
        "features.issubset(declared)",
        "features.issuperset(declared)",
    ),
    # Resources.
    Mutation(
        "a node takes as many Pods as it allows",
        _P + "node_resources_fit.py",
        "nodes.pod_counts[rows] + 1 > nodes.allowed_pods[rows]",
        "nodes.pod_counts[rows] > nodes.allowed_pods[rows]",
    ),
    Mutation(
        "more than a node has is unresolvable",
        _P + "node_resources_fit.py",
        "beyond |= lacking & (request > allocatable)",
        "beyond |= lacking & (request >= allocatable)",
    ),
    Mutation(
        "devices serve what a node does not offer",
        _P + "node_resources_fit.py",
        "lacking &= allocatable > 0",
        "lacking &= allocatable >= 0",
    ),
    Mutation(
        "ignored groups are prefixes of names",
        _P + "node_resources_fit.py",
        'or name.partition("/")[0] in self._ignored_groups',
        'or name.partition("/")[2] in self._ignored_groups',
    ),
    Mutation(
        "an overfull resource scores nothing",
        _P + "fit_strategies.py",
        "np.maximum(use.capacity - use.wanted, 0)",
        "np.abs(use.capacity - use.wanted)",
    ),
    Mutation(
        "the ratio's average leaves out zeros and rounds",
        _P + "fit_strategies.py",
        "_round, skips_zero=True)",
        "_round, skips_zero=False)",
    ),
    Mutation(
        "the shape is a line between its points",
        _P + "fit_strategies.py",
        "return y0 + (abs(rise) // run if rise >= 0 else -(abs(rise) // run))",
        "return y0 + rise // run",
    ),
    Mutation(
        "balance is compared with and without the Pod",
        _P + "balanced_allocation.py",
        "return _HALF + (_HALF + with_pod - without_pod) // 2",
        "return with_pod",
    ),
    Mutation(
        "an image counts by the share of nodes that have it",
        _P + "image_locality.py",
        "(float(len(entry.rows)) / float(len(nodes)))",
        "(float(len(entry.rows)) / float(len(nodes) + 1))",
    ),
    Mutation(
        "each container may add an image",
        _P + "image_locality.py",
        "_MAX_BYTES_PER_IMAGE * wanted.total()",
        "_MAX_BYTES_PER_IMAGE * len(wanted)",
    ),
    Mutation(
        "overhead comes on top of pod-level requests",
        "scheduler/api/podrequests.py",
        '_add(total, parse_resources(pod.spec.overhead, _subject(pod), "spec.overhead"))',
        "pass",
    ),
    Mutation(
        "only cpu, memory and huge pages are set for a whole Pod",
        "scheduler/api/podrequests.py",
        'name in (CPU, MEMORY) or name.startswith("hugepages-")',
        "name == CPU",
    ),
    # Topology.
    Mutation(
        "too few domains make the minimum zero",
        _SPREAD + "kept.py",
        "int(here.min()) if len(here) >= max(self.constraint.min_domains, 1) else 0",
        "int(here.min()) if len(here) else 0",
    ),
    Mutation(
        "a Pod that selects itself counts itself",
        _SPREAD + "filtering.py",
        "domain.minimum() - constraint.selects(labels)",
        "domain.minimum() - 1",
    ),
    Mutation(
        "affinity is honored unless told otherwise",
        _SPREAD + "constraints.py",
        'written.nodeAffinityPolicy in (None, "Honor")',
        'written.nodeAffinityPolicy == "Honor"',
    ),
    Mutation(
        "taints are ignored unless told otherwise",
        _SPREAD + "constraints.py",
        'written.nodeTaintsPolicy == "Honor"',
        'written.nodeTaintsPolicy in (None, "Honor")',
    ),
    Mutation(
        "matchLabelKeys narrow the selector",
        _SPREAD + "constraints.py",
        "for key in written.matchLabelKeys if key in labels}",
        "for key in written.matchLabelKeys[:1] if key in labels and key == 'app'}",
    ),
    Mutation(
        "spread scores weigh by the number of domains",
        _SPREAD + "scoring.py",
        "math.log(float(size + 2))",
        "math.log(float(size + 1))",
    ),
    Mutation(
        "the first of its kind is let in",
        _NEAR + "filtering.py",
        "not self.near and self.all_affinity()",
        "self.near and self.all_affinity()",
    ),
    Mutation(
        "placed Pods keep others away",
        _NEAR + "filtering.py",
        "found |= self.repelled.at(key, rows) > 0",
        "found |= self.repelled.at(key, rows) > 1",
    ),
    Mutation(
        "own affinity is told before the others",
        _NEAR + "plugin.py",
        "return np.where(required.affinity_unmet(nodes, rows), self._no_affinity, verdicts)",
        "return np.where((verdicts == 0) & required.affinity_unmet(nodes, rows), self._no_affinity, verdicts)",
    ),
    Mutation(
        "required terms of placed Pods add their weight",
        _NEAR + "scoring.py",
        "weight = required_weight if kind is TermKind.REQUIRED_AFFINITY else",
        "weight = 2 * required_weight if kind is TermKind.REQUIRED_AFFINITY else",
    ),
    Mutation(
        "affinity scores span from the lowest to the highest",
        _NEAR + "scoring.py",
        "(scores - smallest).astype(np.float64)",
        "scores.astype(np.float64)",
    ),
    # Volumes.
    Mutation(
        "a volume belongs to its zone",
        _VOLUMES + "zone.py",
        "np.where(placed & outside, self._elsewhere, 0)",
        "np.where(outside & ~outside, self._elsewhere, 0)",
    ),
    Mutation(
        "new volumes count against the limit",
        _VOLUMES + "limits.py",
        "counts.get(driver, 0) + added > limits[driver]",
        "counts.get(driver, 0) + added >= limits[driver]",
    ),
    Mutation(
        "a ReadWriteOncePod claim has one user",
        _VOLUMES + "restrictions.py",
        "self._in_use if use.uses > 0 else 0",
        "self._in_use if use.uses > 1 else 0",
    ),
    Mutation(
        "the smallest volume that suffices is taken",
        _VOLUMES + "matching.py",
        "suitable.sort(key=lambda pair: pair[0])",
        "suitable.sort(key=lambda pair: pair[0], reverse=True)",
    ),
    Mutation(
        "a volume is reached from where its affinity says",
        _VOLUMES + "plan.py",
        "self.plan.flags[going & ~reached] |= NODE_CONFLICT",
        "self.plan.flags[going & ~reached] |= BIND_CONFLICT",
    ),
    Mutation(
        "storage must have room",
        _VOLUMES + "plan.py",
        "if _limit_bytes(stock) >= requested_bytes:",
        "if _limit_bytes(stock) > 0:",
    ),
    # Devices.
    Mutation(
        "an allocated claim can be used where its node selector says",
        _P + "dynamic_resources/attempt.py",
        "return np.zeros(len(rows), np.bool_) if row is None else rows == row",
        "return np.ones(len(rows), np.bool_)",
    ),
    Mutation(
        "a claim in use by others is not freed",
        _P + "dynamic_resources/plugin.py",
        "if any(consumer.uid != only for consumer in claim.consumers):",
        "if len(claim.consumers) > 1:",
    ),
    Mutation(
        "better alternatives score higher",
        _P + "dynamic_resources/plugin.py",
        "return scores if not highest else scores * 100 // highest",
        "return scores",
    ),
    # Preemption.
    Mutation(
        "a candidate with fewer violated budgets is the better one",
        _P + "default_preemption/choice.py",
        "        candidate.violations,\n",
        "        0,\n",
    ),
    Mutation(
        "the more important Pods are given back first",
        _P + "default_preemption/choice.py",
        "        -info.pod.priority,\n        started_s(info.pod, now),\n",
        "        -info.pod.priority,\n        -started_s(info.pod, now),\n",
    ),
    Mutation(
        "guarded Pods are given back before the others",
        "scheduler/framework/dryrun.py",
        "for info, flag in zip(ordered, flags, strict=True) if flag]",
        "for info, flag in zip(ordered, flags, strict=True) if not flag]",
    ),
    Mutation(
        "nominated Pods of the same priority count",
        "scheduler/framework/nominated.py",
        "info.pod.priority >= cycle.pod.priority",
        "info.pod.priority > cycle.pod.priority",
    ),
    # The attempt as a whole.
    Mutation(
        "reasons are sorted as texts",
        "scheduler/framework/diagnosis.py",
        '", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))',
        '", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))',
    ),
    Mutation(
        "weights multiply scores",
        "scheduler/framework/runner.py",
        "table.totals = table.totals + scores * entry.weight",
        "table.totals = table.totals + scores",
    ),
)
