"""Stories from this replica's audit file, for ``edge.questions``, each with every name in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from scheduler.app.trails import tell
from scheduler.audit.records import Record
from scheduler.audit.stories import Story
from scheduler.edge.audit_store import AuditStoreError
from scheduler.edge.questions import Stories
from scheduler.errors import UserError
from scheduler.explain.sight import Names


def recorded_stories(file: str, names: Callable[[], Awaitable[Names]]) -> Stories | None:
    """None without a file. ``names`` gives those of the objects that exist; the record may name others."""
    if not file:
        return None

    async def told(kind: str, name: str, window: tuple[float, float]) -> tuple[Names, Story]:
        try:
            # SQLite blocks.
            found = await asyncio.to_thread(tell, [file], kind, name, window)
        except (UserError, AuditStoreError) as error:
            # Not its own words: they name what is called alike, of whatever namespace.
            raise UserError(f"{kind} {name}", "", "nothing is on record") from error
        return with_recorded(await names(), found.records), found

    return told


def with_recorded(names: Names, records: Iterable[Record]) -> Names:
    """``names`` and those of objects that only the records know by now."""
    nodes, pods, claims, published = set(names.nodes), set(names.pods), set(names.claims), dict(names.published)
    for record in records:
        nodes.update(filter(None, (record.node, *(score.node for score in record.scores))))
        pods.update(key for key in (record.pod, record.by) if key.count("/") == 1)
        for use in record.claims:
            claims.add(use.claim)
            for device in use.devices:
                driver, _, rest = device.device.partition("/")
                pool, _, last = rest.rpartition("/")
                published.update({driver: "driver", pool: "pool", last: "device"})
    spaces = names.spaces | {key.partition("/")[0] for key in (*pods, *claims)}
    return replace(
        names,
        nodes=frozenset(nodes),
        published=published,
        pods=frozenset(pods),
        claims=frozenset(claims),
        spaces=frozenset(spaces),
    )
