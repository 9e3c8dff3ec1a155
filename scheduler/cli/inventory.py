"""``dra-scheduler inventory``: which devices there are, used, free, tainted, and what is wrong with claims and pools.

Exit codes: 0 all is well, 2 something needs attention (leaked claims, lost devices, claims on tainted devices, unusable
pools), 1 the command failed, or the input has neither slices nor claims.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from scheduler.cli.options import Arguments
from scheduler.cli.sources import (
    add_server_flags,
    add_source_flags,
    caveats_of,
    load_snapshot,
    painter,
    remote_of,
    require_any,
    say,
    write_data,
)

if TYPE_CHECKING:
    from scheduler.explain.inventory_facts import Inventory

GROUPINGS = ("driver", "model", "pool", "node", "device")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How to group, and where to read the cluster."""
    parser.add_argument("--by", choices=GROUPINGS, default="model", help="count devices by this (default model)")
    add_source_flags(parser)
    add_server_flags(parser)


def execute(arguments: Arguments) -> int:
    """0 or 2, see above."""
    from scheduler.edge.dumps import uncollected

    with uncollected():  # a short life with a large heap
        return _execute(arguments)


def _execute(arguments: Arguments) -> int:
    from scheduler.explain.inventory_text import inventory_lines

    found = _answer(arguments)
    if arguments.output != "text":
        write_data(found, arguments.output)
    else:
        for line in inventory_lines(found, arguments.by, painter()):
            say(line)
    return 2 if found.troubled else 0


def _answer(arguments: Arguments) -> Inventory:
    from scheduler.explain.inventory import take_inventory
    from scheduler.explain.inventory_facts import Inventory

    remote = remote_of(arguments)
    if remote is not None:
        from scheduler.app.remote import ask

        return ask(remote, "/inventory", Inventory, {"by": arguments.by}).answer
    snapshot = load_snapshot(arguments)
    require_any(snapshot, ("ResourceSlice", "ResourceClaim"))
    pods_known = "Pod" in snapshot.objects.found
    found = take_inventory(snapshot.state, arguments.by, snapshot.now, pods_known=pods_known)
    found.caveats.extend(caveats_of(snapshot))
    return found
