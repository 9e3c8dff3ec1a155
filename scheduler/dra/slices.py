"""The inventory of slices, maintained event by event, and the node views built from it on demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler.api.core import Node
from scheduler.api.resource import DeviceTaintRule, ResourceSlice
from scheduler.dra.changes import ChangeLog
from scheduler.dra.devices import PoolKey, SliceInfo, rule_matches
from scheduler.dra.features import Features
from scheduler.dra.pools import GatherError, NodeView, gather, relevant, skip_cause
from scheduler.errors import InternalError


class SliceStore:
    """All ResourceSlices with taint rules laid over, indexed by node name and by pool.

    ``view(node)`` is cached per node and dropped when something it depends on changed: a slice of that node, any slice
    of a pool it sees, a slice without node name, its own labels or declared features. ``version`` grows with each
    change; ``verify`` recomputes all cached views.
    """

    def __init__(self, features: Features) -> None:
        self.features = features
        self.version = 0
        self._infos: dict[str, SliceInfo] = {}
        self._of_pool: dict[PoolKey, dict[str, SliceInfo]] = {}
        self._of_node: dict[str, dict[str, SliceInfo]] = {}
        self._global: dict[str, SliceInfo] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._views: dict[str, tuple[Node, NodeView]] = {}
        self._seeing: dict[PoolKey, set[str]] = {}
        # Node names whose views a change concerned.
        self.changes: ChangeLog[str] = ChangeLog()

    def __len__(self) -> int:
        return len(self._infos)

    def get(self, name: str) -> SliceInfo | None:
        """The slice with this name, None without one."""
        return self._infos.get(name)

    def infos(self) -> Iterable[SliceInfo]:
        """Every slice, in the order they came."""
        return tuple(self._infos.values())

    def rules(self) -> Iterable[DeviceTaintRule]:
        """Every taint rule."""
        return tuple(self._rules.values())

    def pool(self, key: PoolKey) -> Iterable[SliceInfo]:
        """Every slice of a pool, whatever its generation or node."""
        return tuple(self._of_pool.get(key, {}).values())

    def apply(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Add (old None), replace or remove (new None) one slice. Cost: O(devices of the slice)."""
        name = (new or old).name if (new or old) is not None else ""  # type: ignore[union-attr] # one of both is given
        previous = self._infos.get(name)
        if new is None:
            if previous is not None:
                self.version += 1
                self._forget(previous)
                self._touch(previous)
                self._infos.pop(name, None)
            return
        self.version += 1
        info = SliceInfo(new, self._ordered_rules())
        if previous is not None:
            same_place = previous.key == info.key and _node_name(previous) == _node_name(info)
            if not same_place:
                self._forget(previous)
            self._touch(previous)
        self._infos[name] = info
        self._remember(info)
        self._touch(info)

    def apply_rule(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> tuple[str, ...]:
        """Add, replace or remove one DeviceTaintRule. Returns the names of the slices whose taints really changed."""
        for rule in (old, new):
            if rule is not None:
                self._rules.pop(rule.metadata.name, None)
        if new is not None:
            self._rules[new.metadata.name] = new
        if not self.features.device_taint_rules:
            return ()
        changed = []
        self.version += 1
        for name, info in list(self._infos.items()):
            if not any(rule is not None and rule_matches(rule, info.key, None) for rule in (old, new)):
                continue
            fresh = SliceInfo(info.slice, self._ordered_rules())
            if [device.taints for device in fresh.devices] != [device.taints for device in info.devices]:
                self._infos[name] = fresh
                self._remember(fresh)
                self._touch(fresh)
                changed.append(name)
        return tuple(changed)

    def view(self, node: Node) -> NodeView:
        """What ``node`` sees. The view and everything in it is immutable but for its caches."""
        kept = self.kept_view(node)
        if kept is not None:
            return kept
        view = self._gather(node)
        self._views[node.name] = (node, view)
        for key in view.watched:
            self._seeing.setdefault(key, set()).add(node.name)
        return view

    def kept_view(self, node: Node) -> NodeView | None:
        """The view of ``node`` when it need not be built, which takes about as long as 3 search steps per device."""
        cached = self._views.get(node.name)
        return cached[1] if cached is not None and (cached[0] is node or _same_node(cached[0], node)) else None

    def nodes_seeing(self, pool: PoolKey) -> Iterable[str]:
        """Nodes whose current view depends on a pool."""
        return self._seeing.get(pool, ())

    def forget_node(self, name: str) -> None:
        """Drop what is cached for a node that is gone."""
        self._views.pop(name, None)
        for nodes in self._seeing.values():
            nodes.discard(name)

    def verify(self) -> None:
        """Recompute every cached view and compare. Raises InternalError on a difference."""
        for name, (node, view) in self._views.items():
            fresh = self._gather(node)
            if fresh.fingerprint() != view.fingerprint():
                raise InternalError(
                    f"the device view of node {name} is stale",
                    (f"cached: {view.fingerprint()}", f"fresh: {fresh.fingerprint()}"),
                )

    def _gather(self, node: Node) -> NodeView:
        own = self._of_node.get(node.name, {})
        return gather(node, (*own.values(), *self._global.values()), self._of_pool, self.features)

    def _ordered_rules(self) -> Sequence[DeviceTaintRule]:
        return tuple(self._rules.values()) if self.features.device_taint_rules else ()

    def _remember(self, info: SliceInfo) -> None:
        self._of_pool.setdefault(info.key, {})[info.name] = info
        node = _node_name(info)
        (self._of_node.setdefault(node, {}) if node else self._global)[info.name] = info

    def _forget(self, info: SliceInfo) -> None:
        of_pool = self._of_pool[info.key]
        of_pool.pop(info.name)
        if not of_pool:
            del self._of_pool[info.key]
        node = _node_name(info)
        if not node:
            self._global.pop(info.name)
            return
        of_node = self._of_node[node]
        of_node.pop(info.name)
        if not of_node:
            del self._of_node[node]

    def _touch(self, info: SliceInfo) -> None:
        """Drop the views that ``info`` may have a part in."""
        node = _node_name(info)
        concerned = set(self._seeing.pop(info.key, ()))
        if node:
            concerned.add(node)
        else:
            # A slice that is not looked at is listed as ignored in every view.
            ignored = bool(skip_cause(info, self.features))
            concerned.update(
                name for name, (cached, view) in self._views.items() if ignored or _depends(cached, view, info)
            )
        for name in concerned:
            self._views.pop(name, None)
        self.changes.add(self.version, concerned)


def _node_name(info: SliceInfo) -> str:
    return info.slice.spec.nodeName or ""


def _depends(node: Node, view: NodeView, info: SliceInfo) -> bool:
    """Whether a view may change with a slice that is not bound to a node by name."""
    if view.error:
        return True
    try:
        return relevant(info, node)
    except GatherError:
        return True


def _same_node(old: Node, new: Node) -> bool:
    return old.metadata.labels == new.metadata.labels and old.status.declaredFeatures == new.status.declaredFeatures
