"""What of all devices a profile may give to claims."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceLimit:
    """``drivers`` and ``pools``: names; an empty set allows all. Both must allow a device.

    The hook for whoever shares a cluster between schedulers: ``Features.device_limit``. A device outside is passed
    over as one that no selector matches, also in mode All.
    """

    drivers: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()

    def allows(self, driver: str, pool: str) -> bool:
        """True when a device of ``driver`` in ``pool`` may be given away."""
        return (not self.drivers or driver in self.drivers) and (not self.pools or pool in self.pools)
