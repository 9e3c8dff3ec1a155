"""The composition root: the only place that wires core, plugins and edge together.

Belongs here: finding plugins, building profiles, starting and stopping the parts. Never here: deciding, I/O of its own.
"""

from __future__ import annotations

from scheduler.app.replica import run

__all__ = ["run"]
