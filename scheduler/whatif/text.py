"""The difference for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence

from scheduler.explain.text import counted
from scheduler.whatif.difference import ADDED, PLACED, UNSERVED, Difference, Outcome, PodChange

Paint = Callable[[str, str], str]
SHOWN_MAX = 200
"""Changes in the text; -o json has all."""


def difference_lines(found: Difference, paint: Paint = lambda style, text: text) -> Iterator[str]:
    """Edits, then each change with before and after, then the sums."""
    for edit in found.edits:
        yield paint("title", f"edit: {edit}")
    groups = _folded(found.changes)
    for group in groups[:SHOWN_MAX]:
        yield from _change_lines(group, paint)
    if len(groups) > SHOWN_MAX:
        left = sum(map(len, groups[SHOWN_MAX:]))
        yield f"… and {left} more changes (-o json shows all)"
    if not found.changes:
        yield "nothing changes"
    tried = counted(found.attempts, "attempt")
    otherwise = "without the edits" if found.edits else "now"
    yield (
        f"{counted(found.after.placed, 'Pod')} placed, {found.after.waiting} waiting "
        f"({otherwise}: {found.before.placed} and {found.before.waiting}); "
        f"{found.unchanged} as they would be anyway; {tried}"
    )
    yield from (paint("hint", text) for text in _unserved_hints(found.changes))
    if not found.until_stable and any(_preempts(change) for change in found.changes):
        yield paint("hint", "Pods would be preempted: --until-stable shows what follows")
    if not found.stable:
        yield paint("bad", "not stable: Pods come and go without end; this is where it was given up")
    yield from (paint("faint", f"taken for granted: {text}") for text in found.assumptions)
    yield from (paint("faint", f"note: {text}") for text in found.caveats)


def _folded(changes: Sequence[PodChange]) -> list[list[PodChange]]:
    """Pods that wait for the same reason are told together, each one's own name in it aside; whoever has a node has a
    line of its own.
    """
    groups: dict[Hashable, list[PodChange]] = {}
    for number, change in enumerate(changes):
        before, after = change.before, change.after
        same: Hashable = number
        if after is not None and after.state != PLACED and (before is None or before.state != PLACED):
            told = "" if before is None else _nameless(change.pod, _words(before))
            same = change.change, change.cause, told, _nameless(change.pod, _words(after)), after.preempts
        groups.setdefault(same, []).append(change)
    return list(groups.values())


def _nameless(pod: str, words: str) -> str:
    """``words`` without the name of the Pod they are about (``pod "…": ResourceClaim not created``); "" keeps it."""
    namespace, _, name = pod.partition("/")
    if not name or name not in words:
        return words
    own = rf"(?<![\w./-]){re.escape(namespace)}/{re.escape(name)}(?![\w.])"
    return re.sub(rf'{own}|(?<="){re.escape(name)}(?![\w.])', "…", words)


def _unserved_hints(changes: Sequence[PodChange]) -> Iterator[str]:
    """How to have Pods placed here that came with an edit and name another scheduler."""
    added = (change.after for change in changes if change.change == ADDED and not change.cause and change.after)
    for name in sorted({after.scheduler for after in added if after.state == UNSERVED}):
        yield (
            f"Pods of {name} get no place here: --serve {name} after --add, or the name of a profile in "
            "spec.schedulerName"
        )


def _preempts(change: PodChange) -> bool:
    return change.after is not None and bool(change.after.preempts)


def _change_lines(group: Sequence[PodChange], paint: Paint) -> Iterator[str]:
    change = group[0]
    good = change.after is not None and change.after.state == PLACED
    style = "good" if good else "bad"
    names = f"pod {change.pod}"
    own = ""
    if len(group) > 1:
        own = change.pod
        names = f"{len(group)} pods: {', '.join(_few([one.pod for one in group]))}"
    causes = [change.cause, f"pod {change.replacement} comes in its place" if change.replacement else ""]
    cause = "; ".join(filter(None, causes))
    yield f"{paint(style, change.change)} {paint('title', names)}" + (f"  ({cause})" if cause else "")
    if change.before is not None:
        yield f"  before: {_nameless(own, _words(change.before))}"
    if change.after is not None:
        yield f"  {'is' if change.change == ADDED else 'after'}: {_nameless(own, _words(change.after))}"
        if change.after.why:
            yield paint("faint", f"    {change.after.why}")
        if change.after.preempts:
            nominated = f" on node {change.after.nominated}" if change.after.nominated else ""
            yield paint("hint", f"    would preempt {', '.join(change.after.preempts)}{nominated}")


def _few(names: Sequence[str]) -> Sequence[str]:
    return [*names[:3], "…", names[-1]] if len(names) > 5 else names


def _words(outcome: Outcome) -> str:
    if outcome.state != PLACED:
        return f"{outcome.state}: {outcome.reason} {outcome.summary}".rstrip()
    given = "; ".join(f"{claim}: {', '.join(devices)}" for claim, devices in outcome.devices.items())
    return f"on node {outcome.node}" + (f" with {given}" if given else "")
