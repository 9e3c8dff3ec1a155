"""A change that may make a waiting Pod fit, to be tried in a simulation."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.api.core import Node, Pod
from scheduler.api.resource import ResourceClaim, ResourceSlice


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change to try. ``family``: of changes with the same one only the first that helps is told.

    ``claims``: (claim, what takes its place); ``pod``: what takes the waiting Pod's place; ``gone``: uids of Pods that
    end; ``replaced``: (node, what takes its place); ``nodes`` and ``slices`` that come. ``only_node``: it counts only
    when the Pod goes there.
    """

    change: str
    subject: str
    text: str
    family: tuple[str, str]
    claims: tuple[tuple[ResourceClaim, ResourceClaim], ...] = ()
    pod: Pod | None = None
    gone: tuple[str, ...] = ()
    replaced: tuple[tuple[Node, Node], ...] = ()
    nodes: tuple[Node, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    only_node: str = ""
