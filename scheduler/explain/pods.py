"""Why a Pod waits, or why it is where it is: asked afresh on a state, every plugin about every node.

The decision itself is made by ``cycle.Attempt``, as in the service; the rest only asks more than an attempt asks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from scheduler.api.core import Pod
from scheduler.api.kinds import POD, RESOURCE_CLAIM
from scheduler.api.podgroups import PodGroup
from scheduler.api.resource import ResourceClaim, ResourceClaimStatus
from scheduler.cycle.decision import Placed
from scheduler.cycle.gang import Member
from scheduler.dra.claims import binding_state, has_binding_conditions
from scheduler.errors import SchedulerError
from scheduler.explain.attempts import attempt_steps, ended
from scheduler.explain.bound import bound_warnings
from scheduler.explain.choice import choose_devices, note_scores
from scheduler.explain.facts import Cause, Explanation, HeldClaim
from scheduler.explain.groups import after_the_others, gang_of, group_steps, group_summary, member_message
from scheduler.explain.holders import who_uses
from scheduler.explain.kept import KeptReports
from scheduler.explain.nodes import cause_of, note_nodes
from scheduler.explain.outcome import report_failure
from scheduler.explain.quotas import OverQuota
from scheduler.framework.profile import Profile
from scheduler.framework.runner import call
from scheduler.framework.status import Code, Status
from scheduler.state.cluster import ClusterState
from scheduler.state.trial import Trial


def explain_pod(profile: Profile, pod: Pod, state: ClusterState, now: float) -> Explanation:
    """``explain_steps`` in one go."""
    return ended(explain_steps(profile, pod, state, now))


def explain_steps(
    profile: Profile, pod: Pod, state: ClusterState, now: float, kept: KeptReports | None = None
) -> Generator[None, None, Explanation]:
    """Everything about one Pod but hints (``hints.hint_steps``), in slices of some milliseconds.

    ``state`` must be one's own (a running scheduler forks its own, ``state.fork``): it may not change between the
    steps, and it is changed and restored for a bound Pod, also when the generator is closed. ``profile`` must be built
    on it. ``now``: Unix seconds. ``kept``: what is known of explanations on this state before. Cost: each filter over
    all nodes, and one search per node whose devices do not serve.
    """
    if pod.terminal:
        return Explanation(pod.key, "ended", pod.spec.schedulerName, f"the Pod has ended: {pod.status.phase}")
    if pod.spec.nodeName:
        return (yield from _scheduled(profile, pod, state, now))
    if pod.metadata.deletionTimestamp is not None:
        text = "the Pod is being deleted: it is not scheduled any more"
        return Explanation(pod.key, "ended", pod.spec.schedulerName, text)
    held_back = held_back_by(profile, pod)
    if held_back is not None:
        found = Explanation(pod.key, "held back", pod.spec.schedulerName, held_back.message, held_back.plugin)
        gate = next((plugin for plugin in profile.pre_enqueue if plugin.name == held_back.plugin), None)
        found.because = _held_because(gate, pod)
        found.held = held_claims(state, pod)
        found.caveats.extend(misspelt_claims(state, pod))
        return found
    group = gang_of(pod, state)
    if group is not None:
        return (yield from _with_gang(profile, pod, group, state, now))
    decision = yield from attempt_steps(profile, pod, state, now)
    if isinstance(decision, Placed):
        found = Explanation(pod.key, "fits", pod.spec.schedulerName, node=decision.node)
        note_scores(found, decision.scores, decision.node, decision.node)
        found.devices = yield from choose_devices(profile, pod, state, now, decision.node, {})
    else:
        report = report_failure(decision)
        found = Explanation(pod.key, "waiting", pod.spec.schedulerName, report.message)
        found.node = report.nominated_node or ""
    found.held = held_claims(state, pod)
    yield
    yield from note_nodes(found, profile, pod, state, now, kept)
    return found


def _with_gang(
    profile: Profile, pod: Pod, group: PodGroup, state: ClusterState, now: float
) -> Generator[None, None, Explanation]:
    """A member of a gang: the gang's fate is its own, so nodes are told for the member that finds no place."""
    decision = yield from group_steps(profile, pod, group, state, now)
    own = next((member for member in decision.members if member.pod.uid == pod.uid), Member(pod))
    if decision.text or own.placed is None:
        found = Explanation(pod.key, "waiting", pod.spec.schedulerName, member_message(own, decision))
        yield from after_the_others(found, profile, group, decision, state, now)
    else:
        found = Explanation(pod.key, "fits", pod.spec.schedulerName, node=own.placed.node)
        yield from note_nodes(found, profile, pod, state, now)
    found.held = held_claims(state, pod)
    found.summary[:0] = group_summary(group, pod, decision)
    return found


def held_back_by(profile: Profile, pod: Pod) -> Status | None:
    """The PreEnqueue plugin's refusal that keeps the Pod out of the queue, None when it may enter."""
    for plugin in profile.pre_enqueue:
        status: Status = call(plugin, "PreEnqueue", plugin.pre_enqueue, pod)
        if status.code is not Code.SUCCESS:
            return status.by(plugin.name)
    return None


def _held_because(plugin: Any, pod: Pod) -> list[Cause]:
    """What a gate says; one that breaks here says nothing more than its refusal."""
    if not hasattr(plugin, "because_held_back"):
        return []
    try:
        return [cause_of(one) for one in plugin.because_held_back(pod)]
    except Exception as error:  # foreign code, and only asked to explain
        return [Cause("", f"it cannot say more: {type(error).__name__}: {error}")]


def misspelt_claims(state: ClusterState, pod: Pod) -> Iterator[str]:
    """Names of claims that do not exist but look like one that does."""
    prefix = f"{pod.metadata.namespace}/"
    known = [key.removeprefix(prefix) for key in state.devices.claims if key.startswith(prefix)]
    for entry in pod.spec.resourceClaims:
        name = entry.resourceClaimName
        if name is not None and name not in known:
            elsewhere = sorted(key for key in state.devices.claims if key.endswith(f"/{name}"))
            for near in [prefix + one for one in get_close_matches(name, known, 1)] or elsewhere[:1]:
                yield f"there is no claim {prefix}{name}, but there is {near}"


def template_causes(
    pod: Pod,
    templates: Mapping[str, ResourceClaim],
    unreadable: Collection[str] = (),
    refusals: Callable[[ResourceClaim], Iterable[OverQuota]] = lambda claim: (),
) -> Iterator[Cause]:
    """Why the claims of a Pod's templates are not there. ``templates``: by ``namespace/name``, what each would make.

    ``unreadable``: those that are there and of which nothing else is known. ``refusals``: limits in a claim's way.
    """
    made = {status.name for status in pod.status.resourceClaimStatuses}
    for entry in pod.spec.resourceClaims:
        name = entry.resourceClaimTemplateName
        key = f"{pod.metadata.namespace}/{name}"
        if name is None or entry.name in made or key in unreadable:
            continue
        of = f"(entry {entry.name} of spec.resourceClaims)"
        facts = {"entry": entry.name, "template": key}
        if key in templates:
            over = list(refusals(templates[key]))
            for one in over:
                text = f"no claim of ResourceClaimTemplate {key} can be made {of}: {one.words()}"
                yield Cause("quota", text, facts | one.facts())
            if over:
                continue
            text = f"the claim controller has not made the claim of ResourceClaimTemplate {key} yet {of}"
            yield Cause("template", text, facts)
            continue
        known = {one.partition("/")[2]: one for one in templates if one.startswith(f"{pod.metadata.namespace}/")}
        near = [known[one] for one in get_close_matches(name, known, 2)]
        near += sorted(one for one in templates if one.partition("/")[2] == name)[:2]
        hint = f"; there is {', '.join(near)}" if near else ""
        yield Cause("template", f"there is no ResourceClaimTemplate {key} {of}{hint}", facts)


def held_claims(state: ClusterState, pod: Pod) -> list[HeldClaim]:
    """The Pod's claims that have devices already."""
    special = state.devices.special_claim_of(pod.metadata.namespace, pod.uid)
    claims = {claim.key: claim for claim in (*state.devices.claims_of(pod), *([special] if special else []))}
    return [_held(claim) for claim in claims.values() if claim.status.allocation is not None]


def _held(claim: ResourceClaim) -> HeldClaim:
    allocation = claim.status.allocation
    assert allocation is not None
    devices = [f"{r.request}: {r.driver}/{r.pool}/{r.device}" for r in allocation.devices.results]
    return HeldClaim(
        claim.key,
        devices,
        usable_on(claim),
        allocation.allocationTimestamp or "",
        [consumer.name for consumer in claim.consumers],
        _awaits(claim),
    )


def _awaits(claim: ResourceClaim) -> str:
    """What the claim's driver has not reported yet, or that it failed; "" when there is nothing to wait for."""
    allocation = claim.status.allocation
    if allocation is None or not has_binding_conditions(claim):
        return ""
    ready, failure = binding_state(claim)
    if ready or failure:
        return failure
    names = sorted({name for result in allocation.devices.results for name in result.bindingConditions})
    return f"its driver has not reported all of the conditions {', '.join(names)}: the Pod is not bound before that"


def usable_on(claim: ResourceClaim) -> str:
    """Where an allocated claim can be used: ``node n``, ``any node``, or the selector's terms."""
    allocation = claim.status.allocation
    if allocation is None or allocation.nodeSelector is None:
        return "any node"
    parts = []
    for term in allocation.nodeSelector.nodeSelectorTerms:
        for rule in (*term.matchFields, *term.matchExpressions):
            if (rule.key, rule.operator) == ("metadata.name", "In"):
                parts.append(f"node {', '.join(rule.values)}")
            else:
                parts.append(f"nodes with {rule.key} {rule.operator} {', '.join(rule.values)}".rstrip())
    return " and ".join(parts) or "no node"


def _scheduled(profile: Profile, pod: Pod, state: ClusterState, now: float) -> Generator[None, None, Explanation]:
    """A bound Pod: its devices, and how nodes would score if it were to be placed again now."""
    found = Explanation(pod.key, "scheduled", pod.spec.schedulerName, node=pod.spec.nodeName)
    found.warnings.extend(bound_warnings(state, pod))
    found.held = held_claims(state, pod)
    unbound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, nodeName=""))
    opened: dict[str, ResourceClaim] = {}
    with Trial(state) as trial:
        trial.put(POD, state.pods.get(pod.uid), unbound)
        for claim in state.devices.claims_of(pod):
            others = [consumer for consumer in claim.consumers if consumer.uid != pod.uid]
            if claim.status.allocation is not None and not others:
                opened[claim.key] = claim
                trial.put(RESOURCE_CLAIM, claim, msgspec.structs.replace(claim, status=ResourceClaimStatus()))
        try:
            decision = yield from attempt_steps(profile, unbound, state, now)
        except SchedulerError as error:
            found.caveats.append(f"it cannot be said how nodes would score now: {error}")
            return found
        if isinstance(decision, Placed):
            note_scores(found, decision.scores, pod.spec.nodeName, decision.node)
            found.message = f"placed again now it would go to {decision.node}"
        else:
            found.message = f"placed again now it would wait: {report_failure(decision).message}"
        found.devices = yield from choose_devices(profile, unbound, state, now, pod.spec.nodeName, opened)
    found.users = who_uses(state, {h for one in found.devices for part in one.passed for h in part.holders})
    found.caveats.append("scores and choices are as they would be now; what was decided then is not kept here")
    return found
