"""Explanations as text for people. Colours are the business of the ``paint`` that is passed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from scheduler.explain.choice import choice_words
from scheduler.explain.facts import (
    Cause,
    ClaimReport,
    DeviceGroup,
    Explanation,
    HeldClaim,
    NodeGroup,
    RequestReport,
    ScoreRow,
)
from scheduler.explain.holders import use_words
from scheduler.explain.trees import ABSENT, THIS_POD

Paint = Callable[[str, str], str]
"""(style, text) → text. Styles: title, good, bad, hint, faint."""
NODES_SHOWN, DEVICES_SHOWN, HOLDERS_SHOWN, VALUES_SHOWN = 4, 6, 3, 4
_PHASES = {
    "waiting": "waits",
    "held back": "is held back before the queue",
    "fits": "fits: nothing keeps it from being placed now",
    "scheduled": "is scheduled",
    "ended": "needs no node any more",
}


def plain(style: str, text: str) -> str:
    """No style at all."""
    return text


def explanation_reply(found: Explanation, now: float) -> dict[str, Any]:
    """What a scheduler replies: the ``answer``, and its ``text`` as lines."""
    return {"answer": found, "text": list(explanation_lines(found, now))}


def explanation_lines(found: Explanation, now: float, paint: Paint = plain) -> Iterator[str]:
    """The whole explanation. ``now``: Unix seconds, for ages."""
    phase = _PHASES[found.phase]
    style = "good" if found.phase in ("fits", "scheduled") else "bad"
    where = f" on node {found.node}" if found.node and found.phase == "scheduled" else ""
    yield paint("title", f"Pod {found.pod}") + " " + paint(style, f"{phase}{where}")
    if found.phase == "fits":
        yield f"  it would go to node {found.node}"
    yield from (paint("bad", f"  warning: {warning.text}") for warning in found.warnings)
    if found.message:
        yield f"  {found.message}"
    if found.phase == "waiting" and found.node:
        yield f"  it may preempt less important Pods on node {found.node}"
    if found.culprit:
        yield f"  refused by {found.culprit}"
    yield from (f"    {line}" for line in _cause_lines(found.because, 1))
    yield from (f"  {line}" for line in found.summary)
    for claim in found.held:
        yield from _held_lines(claim, paint)
    if found.nodes:
        who = {claim: use_words(use, now, found.scheduler) for claim, use in found.users.items()}
        yield ""
        yield paint("title", "Nodes")
        for group in found.nodes:
            yield from _node_lines(group, who, paint)
    if found.devices:
        yield ""
        yield paint("title", "Why these devices")
        yield from (f"  {line}" for line in _device_choice_lines(found, now, paint))
    if found.choice is not None:
        yield ""
        yield paint("title", "Why this node")
        yield f"  {choice_words(found.choice)}"
    if found.scores:
        yield ""
        yield from _score_lines(found, paint)
    if found.hints:
        yield ""
        yield paint("title", "What would help") + paint("faint", " (each was tried in a simulation)")
        for hint in found.hints:
            yield paint("hint", f"  - {hint.text}") + f": it would go to node {hint.node}"
    if found.caveats:
        yield ""
        yield from (paint("faint", f"note: {caveat}") for caveat in found.caveats)


def _held_lines(claim: HeldClaim, paint: Paint) -> Iterator[str]:
    since = f", since {claim.since}" if claim.since else ""
    yield f"  claim {claim.claim} has its devices ({claim.usable_on}{since})"
    if claim.awaits:
        yield paint("bad", f"    {claim.awaits}")
    yield from (paint("faint", f"    {device}") for device in claim.devices)


def _node_lines(group: NodeGroup, who: Mapping[str, str], paint: Paint) -> Iterator[str]:
    yield "  " + paint("good" if group.fits else "bad", nodes_text(group.nodes)) + _fit_words(group)
    for verdict in group.verdicts:
        yield f"    {verdict.plugin}: {'; '.join(verdict.reasons) or verdict.code}"
        yield from (f"      {line}" for line in _cause_lines(verdict.because, len(group.nodes)))
        if verdict.more:
            yield paint("faint", f"      and on {counted(verdict.more, 'more node')} with other numbers")
    for note in group.notes:
        yield f"    {note}"
    for claim in group.claims:
        yield from _claim_lines(claim, group, who, paint)


def _fit_words(group: NodeGroup) -> str:
    if not group.fits:
        return ""
    return " fits" if len(group.nodes) == 1 else " fit"


def _cause_lines(causes: Sequence[Cause], nodes: int) -> Iterator[str]:
    for cause in causes:
        alike = cause.nodes == nodes
        where = "" if alike else f" ({cause.node})" if cause.nodes == 1 else f" ({counted(cause.nodes, 'node')})"
        yield cause.text + where


def _claim_lines(claim: ClaimReport, group: NodeGroup, who: Mapping[str, str], paint: Paint) -> Iterator[str]:
    yield f"    claim {claim.claim}"
    for request in claim.requests:
        yield f"      request {request.request}{_wanted(request)}: {summary_of(request)}"
        for part in request.refused:
            yield f"        {part.count} {device_words(part)}" + paint("faint", _where(part, group))
            yield from (f"          {line}" for line in _holder_lines(part, who))


def _wanted(request: RequestReport) -> str:
    return f" ({request.wants})" if request.wants else ""


def summary_of(request: RequestReport) -> str:
    """``8 devices: 5 in use, 2 selector false, 1 tainted``."""
    parts = [(group.count, short_reason(group)) for group in request.refused]
    would_do = [(request.left, "would do")] if request.left > 0 else []
    return f"{counted(request.devices, 'device')}: {join_counts([*would_do, *parts])}"


def join_counts(parts: Sequence[tuple[int, str]]) -> str:
    """Equal words added up, in order of first appearance."""
    counts: dict[str, int] = {}
    for count, words in parts:
        counts[words] = counts.get(words, 0) + count
    return ", ".join(f"{count} {words}" for words, count in counts.items())


def counted(number: int, what: str) -> str:
    """``1 device``, ``2 devices``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def short_reason(group: DeviceGroup) -> str:
    """A few words: the reason, with the number that matters."""
    detail = group.detail
    if group.reason == "in use by claim":
        return "in use"
    if group.reason == "capacity short by":
        name = detail.get("capacity", "").rpartition("/")[2]
        if "free" in detail:
            return f"{name} {detail['free']} free < {detail['asked']}"
        if "asked" in detail:
            return f"{name} {detail['total']} < {detail['asked']}"
        return f"{name} too small"
    if group.reason == "counter short by":
        name = detail.get("counter", "").rpartition("/")[2]
        asked = f" < {detail['asked']}" if "asked" in detail else ""
        return f"counter {name} {detail.get('free', '?')} free{asked}"
    if group.reason == "match broken against":
        return f"match of {detail.get('attribute', '')} broken"
    if group.reason == "distinct broken against":
        return f"{detail.get('attribute', '')} not distinct"
    if group.reason == "attribute missing":
        return f"without {detail.get('attribute', '')}"
    return group.reason


def device_words(group: DeviceGroup) -> str:
    """One line about one group of devices, with all facts but names."""
    detail = group.detail
    if group.reason == "in use by claim":
        return "in use"
    if group.reason == "selector false":
        return f"selector false: {_one_line(detail.get('selector', ''))}{_values(group)}"
    if group.reason == "selector error":
        guard = f"; guard it with: {detail['guard']}" if detail.get("guard") else ""
        return f"selector error: {_one_line(detail.get('error', ''))}{guard}"
    if group.reason == "tainted":
        return f"tainted {detail.get('taint', '')}"
    if group.reason in ("match broken against", "distinct broken against"):
        value = f": {detail['value']} here" if "value" in detail else ""
        against = f", against {detail['against']}" if detail.get("against") else ""
        word = "match of" if group.reason.startswith("match") else "distinct"
        return f"{word} {detail.get('attribute', '')} broken{value}{against}"
    if group.reason == "attribute missing":
        return f"attribute missing: {detail.get('attribute', '')}"
    if group.reason in ("capacity short by", "counter short by"):
        return _short_words(group)
    facts = ", ".join(f"{name} {value}" for name, value in detail.items())
    return f"{group.reason} ({facts})" if facts else group.reason


def _short_words(group: DeviceGroup) -> str:
    detail = group.detail
    what = "counter" if group.reason.startswith("counter") else "capacity"
    name = detail.get(what, "")
    by = f" short by {detail['short by']}" if "short by" in detail else ""
    if "free" in detail:
        told = f"{detail.get('asked', '?')} asked, {detail['free']} free of {detail.get('total', '?')}"
    else:
        told = detail.get("because", "")
    return f"{what} {name}{by or ' does not suit'}: {told}"


def _values(group: DeviceGroup) -> str:
    parts = []
    for name, values in group.values.items():
        # What is absent first: a name that no device has is a mistake more often than a value that few have.
        ordered = sorted(values.items(), key=lambda entry: (not entry[0].startswith(ABSENT), -entry[1]))
        shown = ordered[:VALUES_SHOWN]
        if len(values) > VALUES_SHOWN:
            parts.append(f"{name} has {len(values)} different values, such as {', '.join(value for value, _ in shown)}")
            continue
        listed = ", ".join(f"{value} ({count})" if len(values) > 1 else value for value, count in shown)
        over = " over all nodes" if len(values) > 1 and sum(values.values()) > group.count else ""
        parts.append(f"{name} is {listed}{over}")
    return f"; {'; '.join(parts)}" if parts else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _where(part: DeviceGroup, group: NodeGroup) -> str:
    if not part.devices or len(group.nodes) > 1:
        return ""
    more = ", …" if part.count > DEVICES_SHOWN else ""
    return f"  [{', '.join(part.devices[:DEVICES_SHOWN])}{more}]"


def _holder_lines(part: DeviceGroup, who: Mapping[str, str]) -> Iterator[str]:
    holders = sorted(part.holders.items(), key=lambda entry: (-entry[1], entry[0]))
    for claim, count in holders[:HOLDERS_SHOWN]:
        if claim == THIS_POD:
            yield f"{count} taken for this Pod itself"
        elif claim:
            words = who.get(claim, "")
            yield f"{count} by claim {claim}" + (f" ({words})" if words else "")
    if len(holders) > HOLDERS_SHOWN:
        rest = holders[HOLDERS_SHOWN:]
        yield f"{sum(count for _, count in rest)} by {counted(len(rest), 'more claim')}"


def nodes_text(nodes: Sequence[str]) -> str:
    """``node n``, or ``18 nodes n1, n2, n3, … n18``."""
    if len(nodes) == 1:
        return f"node {nodes[0]}"
    if len(nodes) <= NODES_SHOWN:
        return f"{len(nodes)} nodes: {', '.join(nodes)}"
    return f"{len(nodes)} nodes: {', '.join(nodes[: NODES_SHOWN - 1])}, … {nodes[-1]}"


def _device_choice_lines(found: Explanation, now: float, paint: Paint) -> Iterator[str]:
    who = {claim: use_words(use, now) for claim, use in found.users.items()}
    for choice in found.devices:
        wanted = f" ({choice.wants})" if choice.wants else ""
        yield f"claim {choice.claim}, request {choice.request}{wanted}: {', '.join(choice.devices)}"
        if choice.now:
            yield f"  decided now it would be {', '.join(choice.now)}"
        else:
            yield "  the first that suit in the order of pools" if choice.passed else "  the first of their pools"
        for part in choice.passed:
            names = ", ".join(part.devices[:DEVICES_SHOWN]) + (", …" if part.count > DEVICES_SHOWN else "")
            yield f"  passed over: {part.count} {device_words(part)}" + paint("faint", f"  [{names}]")
            yield from (f"    {line}" for line in _holder_lines(part, who))
        if choice.later > 0:
            yield f"  not needed: {counted(choice.later, 'device')} of the node that came later"


def _score_lines(found: Explanation, paint: Paint) -> Iterator[str]:
    plugins = [name for name in found.weights if any(row.raw.get(name) or row.scores.get(name) for row in found.scores)]
    heads = ["NODE", "TOTAL", *(f"{name} ×{found.weights[name]}" for name in plugins)]
    cells = [[row.node, str(row.total), *(_score_words(row, name) for name in plugins)] for row in found.scores]
    note = " (as they are now; in brackets before scaling; plugins that give every node 0 are left out)"
    yield paint("title", "Scores") + paint("faint", note)
    yield from ("  " + line for line in table([heads, *cells]))


def _score_words(row: ScoreRow, plugin: str) -> str:
    score, raw = row.scores.get(plugin, 0), row.raw.get(plugin, 0)
    return str(score) if score == raw else f"{score} ({raw})"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns side by side; numbers to the right, everything else to the left."""
    if not rows:
        return
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    right = [
        all(row[place].replace("%", "").lstrip("-").isdigit() or row[place] == "-" for row in rows[1:])
        and len(rows) > 1
        for place in range(len(rows[0]))
    ]
    for row in rows:
        parts = [
            text.rjust(width) if aligned else text.ljust(width)
            for text, width, aligned in zip(row, widths, right, strict=True)
        ]
        yield "  ".join(parts).rstrip()
