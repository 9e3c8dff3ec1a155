"""Host ports in use, by protocol and port, so that conflicts are found without looking at every row."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.state.podinfo import ANY_IP, HostPort


def ports_conflict(wanted: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    """True when some wanted port equals a used one and the addresses meet (spec 3.7)."""
    present = list(used)
    return any(
        port == other_port and protocol == other_protocol and _addresses_meet(ip, other_ip)
        for ip, protocol, port in wanted
        for other_ip, other_protocol, other_port in present
    )


class PortIndex:
    """(protocol, port) → row → IP → number of Pods."""

    __slots__ = ("_uses",)

    def __init__(self) -> None:
        self._uses: dict[tuple[str, int], dict[int, dict[str, int]]] = {}

    def add(self, row: int, ports: Iterable[HostPort]) -> None:
        """A Pod with ``ports`` is on ``row``."""
        for ip, protocol, port in ports:
            addresses = self._uses.setdefault((protocol, port), {}).setdefault(row, {})
            addresses[ip] = addresses.get(ip, 0) + 1

    def remove(self, row: int, ports: Iterable[HostPort]) -> None:
        """The undo of ``add``."""
        for ip, protocol, port in ports:
            rows = self._uses[protocol, port]
            addresses = rows[row]
            addresses[ip] -= 1
            if not addresses[ip]:
                del addresses[ip]
            if not addresses:
                del rows[row]
            if not rows:
                del self._uses[protocol, port]

    def conflicting_rows(self, ports: Iterable[HostPort]) -> set[int]:
        """Rows where one of ``ports`` is taken. Cost: the rows that use these port numbers."""
        found: set[int] = set()
        for ip, protocol, port in ports:
            for row, addresses in self._uses.get((protocol, port), {}).items():
                if any(_addresses_meet(ip, used) for used in addresses):
                    found.add(row)
        return found

    def uses(self) -> dict[tuple[str, int], dict[int, dict[str, int]]]:
        """Everything held, for comparison."""
        return self._uses


def _addresses_meet(one: str, other: str) -> bool:
    return one == other or ANY_IP in (one, other)
