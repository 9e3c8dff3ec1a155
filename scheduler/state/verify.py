"""Comparison of node columns with ones computed from scratch: what --verify-caches runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.errors import InternalError

if TYPE_CHECKING:
    from scheduler.state.nodes import NodeTable


def check_nodes(table: NodeTable, fresh: NodeTable) -> None:
    """Raise InternalError for the first difference between ``table`` and ``fresh``, naming node and column.

    Not compared: row numbers, the order within a zone and image sizes, which depend on history.
    """
    held, expected = table.describe(), fresh.describe()
    if held.keys() != expected.keys():
        raise InternalError(f"node columns: rows for {sorted(held.keys() ^ expected.keys())} in one of both only")
    for name, row in held.items():
        for column, value in row.items():
            if value != expected[name][column]:
                raise InternalError(
                    f"node columns: {name}: {column}", (f"held: {value}", f"recomputed: {expected[name][column]}")
                )
    problems = table.label_problems()
    if problems:
        raise InternalError("node columns: labels differ", problems)
    if table.taint_counts() != fresh.taint_counts():
        raise InternalError("node columns: taint sets in use are counted wrongly")
    live = {name for name, row in held.items() if row["node"] is not None}
    listed = [table.node(int(row)).name for row in table.order()]
    if len(listed) != len(live) or set(listed) != live:
        raise InternalError(f"node columns: the node list has {len(listed)} entries, {len(live)} nodes are known")
    for free in table.free_rows():
        if not table.row_is_empty(free):
            raise InternalError(f"node columns: free row {free} is not empty")
