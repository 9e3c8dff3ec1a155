"""Asks audit files: one story from the trails of several replicas."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.audit.records import Record
from scheduler.audit.stories import Story, claim_uids, concerns, merged, story
from scheduler.edge.audit_store import known_names, read_records
from scheduler.errors import UserError

ALWAYS = (0.0, float("inf"))


def all_records(files: Sequence[str], window: tuple[float, float] = ALWAYS) -> list[Record]:
    """Every record of the files in a window of Unix seconds, as one trail."""
    return merged(read_records(file, None, *window) for file in files)


def tell(files: Sequence[str], kind: str, name: str, window: tuple[float, float] = ALWAYS) -> Story:
    """The story of a Pod, claim (both ``namespace/name``), device (``driver/pool/device`` or its end) or node.

    What became of the claims belongs to it. Raises UserError when nothing is recorded, naming what is alike.
    """
    records = _about(files, kind, name, window)
    if not records and kind == "device":
        ending = [full for full in _alike(files, kind, name) if full.endswith(f"/{name}")]
        if len(ending) == 1:
            name = ending[0]
            records = _about(files, kind, name, window)
    if not records:
        alike = [known for known in _alike(files, kind, name.rpartition("/")[2]) if known != name]
        hint = f"; there is {', '.join(alike[:5])}" if alike else ""
        outside = "" if window == ALWAYS else " in this window of time"
        raise UserError(f"{kind} {name}", "", f"nothing is recorded{outside}{hint}")
    return story(kind, name, records)


def told_together(stories: Sequence[Story]) -> Story:
    """What several replicas have on record about one subject. ``stories``: one at least."""
    first = stories[0]
    return first if len(stories) == 1 else story(first.kind, first.name, merged(one.records for one in stories))


def _about(files: Sequence[str], kind: str, name: str, window: tuple[float, float]) -> list[Record]:
    direct = merged(read_records(file, [(kind, name)], *window) for file in files)
    uids = sorted(claim_uids(direct))
    if not uids:
        return direct
    wanted = [("claim-uid", uid) for uid in uids]
    others = merged(read_records(file, wanted, *window) for file in files)
    # Of others' decisions about a shared claim only those belong here that say where its devices came from.
    more = [record for record in others if record.kind in ("freed", "foreign", "found") or _gave(record, uids)]
    if kind in ("device", "node"):
        more = [record for record in more if record.kind == "freed" or concerns(record, kind, name)]
    return merged([direct, more])


def _gave(record: Record, uids: Sequence[str]) -> bool:
    return record.kind == "decision" and any(use.given and use.uid in uids for use in record.claims)


def _alike(files: Sequence[str], kind: str, part: str) -> list[str]:
    return sorted({name for file in files for name in known_names(file, kind, part)})
