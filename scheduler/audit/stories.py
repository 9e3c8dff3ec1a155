"""Stories: the records about one Pod, claim, device or node, in order, as data and as lines for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from scheduler.audit.records import ClaimUse, Record, subjects

SUBJECTS = ("pod", "claim", "device", "node")
Style = Callable[[str, str], str]


class Holding(msgspec.Struct, omit_defaults=True):
    """A device, for a claim, from one moment to another. Unix seconds; ``until`` 0: still held, as far as is known."""

    device: str
    claim: str
    pod: str
    node: str
    since: float
    until: float = 0.0
    freed_by: str = ""
    freed: str = ""


class Story(msgspec.Struct, omit_defaults=True):
    """``holdings``: who had which device when, as far as the records reach; oldest first."""

    kind: str
    name: str
    records: list[Record]
    holdings: list[Holding]


def merged(trails: Iterable[Iterable[Record]]) -> list[Record]:
    """Records of several trails as one, by time. Of two versions of one record the later one counts."""
    newest: dict[str, Record] = {}
    for trail in trails:
        for record in trail:
            known = newest.get(record.id)
            if known is None or (record.kind == "found" and record.time < known.time) or record.last > known.last:
                newest[record.id] = record
    return sorted(newest.values(), key=lambda record: (record.time, record.id))


def claim_uids(records: Iterable[Record]) -> set[str]:
    """The claims of decisions: what else happened to them belongs to the story."""
    return {use.uid for record in records for use in record.claims if use.uid}


def story(kind: str, name: str, records: Sequence[Record]) -> Story:
    """The story of ``records``, merged ones, about one subject."""
    told = _without_known(records)
    return Story(kind, name, told, _holdings(kind, name, told))


def _without_known(records: Sequence[Record]) -> list[Record]:
    """What a later start finds is news only if no record before it says so."""
    told: list[Record] = []
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for record in records:
        keys = {(use.uid, tuple(device.device for device in use.devices)) for use in record.claims}
        if record.kind == "found" and keys <= seen:
            continue
        if record.kind == "freed":
            seen -= keys
        else:
            seen |= keys
        told.append(record)
    return told


def _holdings(kind: str, name: str, records: Sequence[Record]) -> list[Holding]:
    """From each record that gave devices to the one that freed them."""
    held: dict[str, list[Holding]] = {}
    found: list[Holding] = []
    for record in records:
        if record.kind == "freed" or (record.kind == "decision" and record.outcome in ("undone", "lost")):
            for use in record.claims:
                _end(held, record, use)
        if record.kind not in ("decision", "foreign", "found") or record.outcome in ("undone", "lost"):
            continue
        for use in record.claims:
            if use.uid in held and (use.given or record.kind == "decision"):
                continue  # another Pod of a shared claim
            for device in use.devices:
                holding = Holding(device.device, use.claim, record.pod, record.node, record.time)
                held.setdefault(use.uid, []).append(holding)
                found.append(holding)
    if kind == "device":
        return [holding for holding in found if holding.device == name]
    return [holding for holding in found if kind != "node" or holding.node == name]


def _end(held: dict[str, list[Holding]], record: Record, use: ClaimUse) -> None:
    for holding in held.pop(use.uid, ()):
        holding.until, holding.freed_by, holding.freed = record.time, record.by, record.text


def concerns(record: Record, kind: str, name: str) -> bool:
    """True when the record itself is about the subject, and not only about a claim of its story."""
    return (kind, name) in set(subjects(record))


def story_lines(told: Story, clock_text: Callable[[float], str], style: Style) -> list[str]:
    """For people: what happened, oldest first, then who had which device."""
    lines = [style("title", f"{told.kind} {told.name}")]
    for record in told.records:
        lines += _record_lines(record, told, clock_text, style)
    if told.holdings:
        lines += ["", style("title", "devices")]
        lines += [_holding_line(holding, clock_text) for holding in told.holdings]
    return lines


def _record_lines(record: Record, told: Story, clock_text: Callable[[float], str], style: Style) -> list[str]:
    who = "" if (told.kind == "pod" and record.pod == told.name) or not record.pod else f"pod {record.pod} "
    lines = [f"{clock_text(record.time)}  {_sentence(record, who, clock_text, style)}"]
    if record.kind == "decision":
        lines += [f"    {detail}" for detail in _decision_details(record)]
    lines += [f"    {text}" for use in record.claims for text in _use_lines(record, use)]
    return lines


def _sentence(record: Record, who: str, clock_text: Callable[[float], str], style: Style) -> str:
    if record.kind == "decision":
        return f"{who}{_OUTCOMES[record.outcome](record, style)}"
    if record.kind == "rejection":
        times = f", {record.count} times until {clock_text(record.until)}" if record.count > 1 else ""
        return f"{who}{style('bad', 'waits')}{times}: {record.text}"
    if record.kind == "freed":
        return f"{style('good', 'freed')} ({record.outcome} by {record.by}): {record.text}"
    if record.kind == "preempted":
        return f"{who}{style('bad', 'preempted')} for pod {record.by} on node {record.node}: {record.text}"
    if record.kind == "ended":
        return f"{who}{record.text}" + (f" on node {record.node}" if record.node else "")
    if record.kind == "given-twice":
        return f"{who}{style('bad', 'has a device that was given twice')}: {record.text}"
    return f"{who}{record.text}" + (f" on node {record.node}" if record.node else "")


def _took(record: Record) -> str:
    return f"{record.duration_s * 1000:.0f} ms" if record.duration_s < 10 else f"{record.duration_s:.0f} s"


_OUTCOMES: dict[str, Callable[[Record, Style], str]] = {
    "bound": lambda r, style: f"{style('good', 'bound')} to node {r.node} ({_took(r)} after the decision)",
    "reserved": lambda r, style: f"was decided for node {r.node}; how that ended is not recorded (yet)",
    "undone": lambda r, style: f"was decided for node {r.node}, which was {style('bad', 'undone')}: {r.text}",
    "lost": lambda r, style: (
        f"was decided for node {r.node}, but another scheduler was {style('bad', 'first')}: {r.text}"
    ),
}


def _decision_details(record: Record) -> list[str]:
    looked = f"{record.feasible} of {record.evaluated} nodes fitted"
    details = [f"{looked}; attempt {record.attempt}, profile {record.profile}, decision {record.id}"]
    if record.scores:
        shown = ", ".join(f"{score.node} {score.total}" for score in record.scores)
        details.append(f"scores: {shown}")
        chosen = next((score for score in record.scores if score.node == record.node), None)
        if chosen is not None and chosen.plugins:
            parts = ", ".join(f"{name} {score}" for name, score in chosen.plugins.items() if score)
            details.append(f"of {chosen.node}: {parts or 'all 0'} (of 100, before weights)")
    return details


def _use_lines(record: Record, use: ClaimUse) -> list[str]:
    verb = ""
    if record.kind == "decision" and not use.given:
        verb = ", which had them already"
    elif record.outcome in ("undone", "lost"):
        verb = ", given back"
    lines = [f"claim {use.claim}{verb}"]
    for device in use.devices:
        consumed = ", ".join(f"{name} {amount}" for name, amount in device.consumed.items())
        request = f" for request {device.request}" if device.request else ""
        share = f", a share{f' of {consumed}' if consumed else ''}" if device.share else ""
        lines.append(f"  device {device.device}{request}{share}{', admin access' if device.admin else ''}")
    return lines


def _holding_line(holding: Holding, clock_text: Callable[[float], str]) -> str:
    until = f"until {clock_text(holding.until)}" if holding.until else "still held, as far as is recorded"
    users = f"claim {holding.claim}" + (f", pod {holding.pod}" if holding.pod else "")
    where = f" on {holding.node}" if holding.node else ""
    freed = f" ({holding.freed})" if holding.freed else ""
    return f"{clock_text(holding.since)}  {holding.device}{where}: {users}, {until}{freed}"
