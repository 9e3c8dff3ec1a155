"""The functions of the Kubernetes 1.37 environment, put together from the library modules."""

from __future__ import annotations

from typing import Final

from scheduler.cel import lib_optional, lib_quantity, lib_regex, lib_standard, semver, timing
from scheduler.cel.registry import Function, build

FUNCTIONS: Final[dict[str, Function]] = build(
    [
        lib_standard.LIBRARY,
        timing.LIBRARY,
        lib_regex.LIBRARY,
        lib_optional.LIBRARY,
        lib_quantity.LIBRARY,
        semver.LIBRARY,
    ]
)
