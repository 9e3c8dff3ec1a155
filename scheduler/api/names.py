"""Names that the API gives, which need no type of it: a command that only shows its help loads this and no more."""

from __future__ import annotations

from typing import Final

#: The scheduler of a Pod that names none, as the API server fills in `spec.schedulerName`.
UPSTREAM_SCHEDULER_NAME: Final = "default-scheduler"
