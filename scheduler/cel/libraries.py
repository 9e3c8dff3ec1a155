"""The functions of the Kubernetes 1.37 environment, put together from the library modules."""

from __future__ import annotations

from typing import Final

from scheduler.cel import (
    lib_lists,
    lib_maps,
    lib_named,
    lib_optional,
    lib_quantity,
    lib_regex,
    lib_standard,
    lib_strings,
    network,
    semver,
    timing,
    url,
)
from scheduler.cel.registry import Function, build

# The order in which the environment adds them: overloads of one name are tried in it.
FUNCTIONS: Final[dict[str, Function]] = build(
    [
        lib_standard.LIBRARY,
        timing.LIBRARY,
        url.LIBRARY,
        lib_regex.LIBRARY,
        lib_optional.LIBRARY,
        lib_quantity.LIBRARY,
        lib_strings.LIBRARY,
        network.LIBRARY,
        lib_named.LIBRARY,
        lib_maps.LIBRARY,
        semver.LIBRARY,
        lib_lists.LIBRARY,
    ]
)
