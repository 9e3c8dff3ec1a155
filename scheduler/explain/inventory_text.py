"""The inventory as text: a table of devices, then what needs attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scheduler.explain.inventory_facts import ClaimNote, Inventory, Line
from scheduler.explain.text import Paint, plain, table

NOTES_SHOWN = 20
_HEADS = {
    "driver": ("driver",),
    "model": ("driver", "model"),
    "pool": ("driver", "pool", "node"),
    "node": ("node",),
    "device": ("driver", "pool", "device", "node", "model"),
}
_COUNTS = ("total", "used", "shared", "tainted", "blocked", "free", "largest")


def inventory_lines(found: Inventory, by: str, paint: Paint = plain) -> Iterator[str]:
    """Everything, one line at a time."""
    yield paint("title", f"Devices by {by}")
    if not found.lines:
        yield "  no devices"
    elif by == "device":
        yield from (f"  {line}" for line in table(_device_rows(found.lines)))
    else:
        yield from (f"  {line}" for line in table(_rows(found.lines, by)))
        yield paint("faint", "  largest: the most that one request could get on one node now")
        yield paint("faint", "  frag: how far that falls short of what as many free devices could serve on one node")
    if found.namespaces:
        yield ""
        yield paint("title", "Devices held by namespace")
        rows = [("NAMESPACE", "DRIVER", "HELD")]
        rows += [
            (namespace, driver, str(count))
            for namespace, drivers in sorted(found.namespaces.items())
            for driver, count in sorted(drivers.items())
        ]
        rows += [
            (namespace, name, amount)
            for namespace, amounts in sorted(found.shares.items())
            for name, amount in amounts.items()
        ]
        yield from (f"  {line}" for line in table(rows))
    if found.pools:
        yield ""
        yield paint("bad", "Pools that cannot be used")
        yield from (f"  {pool}: {problem}" for pool, problem in sorted(found.pools.items()))
    for title, notes in (
        ("Claims that leak", found.leaked),
        ("Claims whose devices are gone", found.lost),
        ("Claims on tainted devices", found.on_tainted),
        ("Claims that wait for long", found.waiting),
    ):
        yield from _notes(title, notes, paint)
    if found.caveats:
        yield ""
        yield from (paint("faint", f"note: {caveat}") for caveat in found.caveats)


def _rows(lines: Sequence[Line], by: str) -> list[list[str]]:
    heads = _HEADS[by]
    counts = [count for count in _COUNTS if count != "blocked" or any(line.blocked for line in lines)]
    remainder = any(line.remainder for line in lines)
    titles = [head.upper() for head in (*heads, *counts)] + ["FRAG"]
    rows = [titles + (["LEFT TO SHARE", "AT MOST ON ONE"] if remainder else [])]
    for line in lines:
        row = [getattr(line, head) or "-" for head in heads] + [str(getattr(line, count)) for count in counts]
        row.append(f"{round(line.fragmentation * 100)}%" if line.free else "-")
        if remainder:
            row += [_amounts(line.remainder), _amounts(line.largest_share)]
        rows.append(row)
    return rows


def _amounts(amounts: dict[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in amounts.items())


def _device_rows(lines: Sequence[Line]) -> list[list[str]]:
    """One row per device: what it is, how it stands, and who has it."""
    heads = _HEADS["device"]
    rows = [[*(head.upper() for head in heads), "STATE", "LEFT TO SHARE", "HELD BY"]]
    for line in lines:
        row = [getattr(line, head) or "-" for head in heads]
        rows.append([*row, standing(line), _amounts(line.remainder) or "-", "; ".join(line.holders) or "-"])
    return rows


def standing(line: Line) -> str:
    """How the one device of a line stands: ``free``, ``used``, ``shared``, ``tainted`` or ``blocked``."""
    return next((state for state in ("used", "shared", "tainted", "blocked") if getattr(line, state)), "free")


def _notes(title: str, notes: Sequence[ClaimNote], paint: Paint) -> Iterator[str]:
    if not notes:
        return
    yield ""
    yield paint("bad", title)
    for note in notes[:NOTES_SHOWN]:
        devices = f": {', '.join(note.devices)}" if note.devices else ""
        yield f"  claim {note.claim}: {note.because}{devices}"
    if len(notes) > NOTES_SHOWN:
        yield f"  and {len(notes) - NOTES_SHOWN} more"
