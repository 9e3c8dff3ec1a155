"""The plugins that place Pods by their volumes: restrictions, limits, binding and zones.

What belongs here: filters, scores and promises about claims and volumes. Never here: claims for devices, API writes.
"""

from plugins.volumes.binding import VolumeBinding
from plugins.volumes.limits import NodeVolumeLimits
from plugins.volumes.restrictions import VolumeRestrictions
from plugins.volumes.zone import VolumeZone

__all__ = ["NodeVolumeLimits", "VolumeBinding", "VolumeRestrictions", "VolumeZone"]
