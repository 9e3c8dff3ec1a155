"""Nominator: which waiting Pods a node's room is kept for.

Source: kube-scheduler 1.37, the scheduling queue's nominator (spec 4.1, 6.3). Unlike there, nominations of every
scheduler's Pods count (B123), and they go with their node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from scheduler.errors import InternalError
from scheduler.state.podinfo import PodInfo

_NOBODY: tuple[PodInfo, ...] = ()


class Nominator:
    """Node name → nominated Pods in order of nomination. A Pod is nominated to one node at most. All calls are O(1)."""

    __slots__ = ("_by_node", "_node_of")

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._node_of)

    def node_of(self, uid: str) -> str:
        """The node a Pod is nominated to, "" without one."""
        return self._node_of.get(uid, "")

    def on(self, node: str) -> Collection[PodInfo]:
        """Pods nominated to ``node``."""
        found = self._by_node.get(node)
        return _NOBODY if found is None else found.values()

    def nodes(self) -> Iterable[str]:
        """Nodes that somebody is nominated to."""
        return self._by_node

    def nominate(self, info: PodInfo, node: str) -> None:
        """``info``'s Pod is nominated to ``node`` and nowhere else; "" ends its nomination."""
        self.forget(info.uid)
        if node:
            self._by_node.setdefault(node, {})[info.uid] = info
            self._node_of[info.uid] = node

    def seen(self, info: PodInfo, before: str, now: str) -> None:
        """The watch shows a waiting Pod whose nominatedNodeName was ``before`` and is ``now``.

        A Pod that never had one keeps what we nominated it to in memory: our own patch may not have come back yet.
        """
        known = self._node_of.get(info.uid, "")
        self.nominate(info, now or (known if not before else ""))

    def forget(self, uid: str) -> None:
        """The Pod is gone, or counts on a node."""
        node = self._node_of.pop(uid, None)
        if node is not None:
            here = self._by_node[node]
            del here[uid]
            if not here:
                del self._by_node[node]

    def forget_node(self, node: str) -> None:
        """The node is gone: a new one of its name owes nobody anything."""
        for uid in list(self._by_node.get(node, ())):
            self.forget(uid)

    def verify(self, waiting: Collection[str]) -> None:
        """InternalError when the indexes differ, or a Pod is nominated that is not among ``waiting`` (uids)."""
        listed = {uid: node for node, pods in self._by_node.items() for uid in pods}
        if listed != self._node_of:
            raise InternalError("nominations by node and by Pod differ")
        strange = [uid for uid in listed if uid not in waiting]
        if strange:
            raise InternalError(f"Pods {strange} are nominated but do not wait")
