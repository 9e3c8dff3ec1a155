"""In-tree disks that not all Pods may share on a node. Source: kube-scheduler 1.37, VolumeRestrictions (spec 3.13)."""

from __future__ import annotations

from scheduler.api.core import Volume


def disk_keys(volume: Volume) -> tuple[str, ...]:
    """Names of the disk behind ``volume``: two volumes conflict only if they share one. Empty for other volumes."""
    keys: list[str] = []
    if volume.gcePersistentDisk is not None:
        keys.append(f"gce {volume.gcePersistentDisk.pdName}")
    if volume.awsElasticBlockStore is not None:
        keys.append(f"ebs {volume.awsElasticBlockStore.volumeID}")
    if volume.iscsi is not None:
        keys.append(f"iscsi {volume.iscsi.iqn}")
    if volume.rbd is not None:
        disk = volume.rbd
        keys += [f"rbd {disk.pool} {disk.image} {monitor}" for monitor in sorted(set(disk.monitors))]
    return tuple(keys)


def disks_conflict(volume: Volume, other: Volume) -> bool:
    """True when one node cannot serve both: same disk, and not both read-only (EBS: never twice)."""
    if not set(disk_keys(volume)).intersection(disk_keys(other)):
        return False
    mine = (volume.gcePersistentDisk, volume.iscsi, volume.rbd)
    theirs = (other.gcePersistentDisk, other.iscsi, other.rbd)
    for ours, of_other in zip(mine, theirs, strict=True):
        if ours is not None and of_other is not None:
            return not (ours.readOnly and of_other.readOnly)
    return True
