"""Why this node and why these devices: for a Pod that fits, and for one that is bound, as things are now."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from scheduler.api.core import Pod
from scheduler.api.resource import ResourceClaim
from scheduler.dra.devices import DeviceKey
from scheduler.dra.pools import NodeView
from scheduler.dra.rejections import DeviceSearch
from scheduler.errors import PluginError
from scheduler.explain.attempts import STEP
from scheduler.explain.facts import DeviceChoice, Explanation, NodeChoice, ScoreRow
from scheduler.explain.trees import claim_reports, device_name, wants
from scheduler.framework.cycle import Budget, Cycle
from scheduler.framework.profile import Profile
from scheduler.framework.runner import ScoreTable, run_pre_filter
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info

SCORES_SHOWN = 20
STEPS_MAX = 100_000
DEVICES = "DynamicResources"


def note_scores(found: Explanation, table: ScoreTable | None, node: str, winner: str) -> None:
    """Fill in ``scores``, ``weights`` and ``choice`` for a Pod that is on ``node``, while ``winner`` would win now."""
    if table is None:
        found.caveats.append("only one node fits, so none was scored")
        return
    found.weights = dict(table.weights)
    names, totals = table.nodes, table.totals.tolist()
    normalized: dict[str, list[Any]] = {plugin: scores.tolist() for plugin, scores in table.normalized.items()}
    raw: dict[str, list[Any]] = {plugin: scores.tolist() for plugin, scores in table.raw.items()}
    places = sorted(range(len(names)), key=lambda place: (-totals[place], names[place] != winner, names[place]))
    shown = places[:SCORES_SHOWN] + [place for place in places[SCORES_SHOWN:] if names[place] == node]
    found.scores = [
        ScoreRow(
            names[place],
            totals[place],
            {plugin: values[place] for plugin, values in normalized.items()},
            {plugin: values[place] for plugin, values in raw.items()},
        )
        for place in shown
    ]
    if len(places) > len(shown):
        found.caveats.append(f"the score table shows {len(shown)} of {len(places)} nodes")
    found.choice = _choice(found.scores, found.weights, node, len(places))


def _choice(rows: Sequence[ScoreRow], weights: dict[str, int], node: str, feasible: int) -> NodeChoice | None:
    own = next((row for row in rows if row.node == node), None)
    others = [row for row in rows if row.node != node]
    if own is None or not others:
        return None
    rival = others[0]
    by_plugin = {
        plugin: (own.scores.get(plugin, 0) - rival.scores.get(plugin, 0)) * weight for plugin, weight in weights.items()
    }
    ties = sum(row.total == own.total for row in others)
    differing = {plugin: points for plugin, points in by_plugin.items() if points}
    return NodeChoice(node, own.total, rival.node, rival.total, own.total - rival.total, differing, ties, feasible)


def choice_words(choice: NodeChoice) -> str:
    """``n2 has 312 points, 12 more than n3, the next best of 5: NodeResourcesFit +10, ImageLocality +2``."""
    points = sorted(choice.by_plugin.items(), key=lambda entry: -abs(entry[1]))
    parts = ", ".join(f"{plugin} {amount:+d}" for plugin, amount in points)
    start = f"{choice.node} has {choice.total} points"
    of_all = f"of {choice.feasible} nodes that fit"
    if choice.ahead_by == 0:
        others = "" if choice.ties == 1 else f" and {choice.ties - 1} more"
        return f"{start}, as many as {choice.runner_up}{others} {of_all}: the tie is broken by the order of nodes" + (
            f" ({parts})" if parts else ""
        )
    word = "more" if choice.ahead_by > 0 else "fewer"
    next_best = "the next best" if choice.ahead_by > 0 else "the best"
    return f"{start}, {abs(choice.ahead_by)} {word} than {choice.runner_up}, {next_best} {of_all}: {parts}"


def choose_devices(
    profile: Profile, pod: Pod, state: ClusterState, now: float, node: str, held: dict[str, ResourceClaim]
) -> Generator[None, None, list[DeviceChoice]]:
    """Which devices a search on ``node`` takes for the Pod's open claims, and which it passes over on the way.

    ``held``: what the claims held before they were opened, by key; empty for a Pod that is not bound. Cost: one search.
    """
    plugin: Any = profile.plugins.get(DEVICES)
    row = state.nodes.row_of(node)
    if row is None or not hasattr(plugin, "device_search_steps"):
        return []
    cycle = Cycle(pod, pod_info(pod), state, now=now, profile_name=profile.name, budget=Budget(STEP))
    cycle.profile = profile
    try:
        if run_pre_filter(profile, cycle).rejection is not None:
            return []
        yield
        search: DeviceSearch = yield from plugin.device_search_steps(cycle, state.nodes.node(row), STEPS_MAX)
    except PluginError:
        return []
    claims = {claim.key: claim for claim in state.devices.claims_of(pod)}
    view = state.devices.slices.view(state.nodes.node(row))
    passed = {
        (report.claim, request.request): request
        for report in claim_reports(search.rejections, claims, view)
        for request in report.requests
    }
    taken: dict[tuple[str, str], list[str]] = {}
    for one in search.chosen:
        taken.setdefault((one.claim, one.request), []).append(device_name(one.device, view))
    choices = []
    for (key, request), now_taken in taken.items():
        report = passed.get((key, request))
        groups = [] if report is None else report.refused
        for group in groups:
            group.devices = [name for name in group.devices if name not in now_taken]
        actual = _actual(held.get(key), request, view)
        choice = DeviceChoice(key, request, wants(claims.get(key), request), actual or now_taken)
        choice.passed = [group for group in groups if group.devices]
        for group in choice.passed:
            group.count = max(len(group.devices), group.count - sum(name in now_taken for name in group.devices))
        choice.now = [] if not actual or actual == now_taken else now_taken
        choice.later = len(view.devices) - len(now_taken) - sum(group.count for group in choice.passed)
        choices.append(choice)
    return choices


def _actual(claim: ResourceClaim | None, request: str, view: NodeView) -> list[str]:
    """The devices that a claim has for a request; for an alternative also when another one was taken then."""
    allocation = None if claim is None else claim.status.allocation
    if allocation is None:
        return []
    main = request.partition("/")[0]
    results = [result for result in allocation.devices.results if result.request.partition("/")[0] == main]
    return [device_name(DeviceKey(result.driver, result.pool, result.device), view) for result in results]
