"""Device classes by name, and which class serves an extended resource.

Source: kube-scheduler 1.37, extended resource cache; where it forgets mappings (a loser of a name clash is never
promoted) ours recomputes them.
"""

from __future__ import annotations

from scheduler.api.resource import IMPLICIT_CLASS_PREFIX, DeviceClass


class ClassStore:
    """All DeviceClasses. ``version`` grows with each change."""

    def __init__(self) -> None:
        self.version = 0
        self._classes: dict[str, DeviceClass] = {}
        self._explicit: dict[str, dict[str, DeviceClass]] = {}

    def get(self, name: str) -> DeviceClass | None:
        """The class with this name, None without one."""
        return self._classes.get(name)

    def __len__(self) -> int:
        return len(self._classes)

    def names(self) -> tuple[str, ...]:
        """All class names, sorted."""
        return tuple(sorted(self._classes))

    def apply(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        """Add (old None), replace or remove (new None) one class."""
        for given in (old, new):
            previous = None if given is None else self._classes.pop(given.name, None)
            if previous is not None and previous.spec.extendedResourceName:
                same = self._explicit.get(previous.spec.extendedResourceName, {})
                same.pop(previous.name, None)
                if not same:
                    self._explicit.pop(previous.spec.extendedResourceName, None)
        if new is not None:
            self._classes[new.name] = new
            if new.spec.extendedResourceName:
                self._explicit.setdefault(new.spec.extendedResourceName, {})[new.name] = new
        self.version += 1

    def for_extended_resource(self, resource: str) -> DeviceClass | None:
        """The class that serves an extended resource name, None without one.

        Explicit names win; among several classes the newest, then the one whose name sorts first. Without an explicit
        one the implicit name ``deviceclass.resource.kubernetes.io/<class>`` counts.
        """
        candidates = self._explicit.get(resource)
        if candidates:
            newest = max(c.metadata.creationTimestamp or "" for c in candidates.values())
            return min(
                (c for c in candidates.values() if (c.metadata.creationTimestamp or "") == newest),
                key=lambda device_class: device_class.name,
            )
        if resource.startswith(IMPLICIT_CLASS_PREFIX):
            return self._classes.get(resource.removeprefix(IMPLICIT_CLASS_PREFIX))
        return None
