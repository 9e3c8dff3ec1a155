"""ImageLocality: nodes that already hold the Pod's images are liked, images that are everywhere less so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator

import numpy as np

from plugins.base import MAX_SCORE, PluginBase
from scheduler.api.core import Pod
from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import Depends, Rows, Scores
from scheduler.state.nodes import NodeTable

_MIN_BYTES = 23 * 1024 * 1024
_MAX_BYTES_PER_IMAGE = 1000 * 1024 * 1024


class ImageLocality(PluginBase):
    """Source: kube-scheduler 1.37, ImageLocality (spec 3.10)."""

    name = "ImageLocality"
    depends = Depends.NODE
    by_template = True

    def signature(self, cycle: Cycle) -> Hashable | None:
        """The images."""
        return tuple(image_names(cycle.pod))

    def epoch(self, nodes: NodeTable) -> Hashable:
        """Which nodes have which images; a score depends on how many there are."""
        return nodes.image_version, nodes.structure_version

    def score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        """Bytes of the Pod's images on the node, scaled by how many nodes hold each, as 0..100.

        Cost: the nodes that hold one of the images.
        """
        wanted = Counter(image_names(cycle.pod))
        largest = _MAX_BYTES_PER_IMAGE * wanted.total()
        if largest <= _MIN_BYTES:
            return np.zeros(len(rows), np.int64)
        sums = np.zeros(nodes.capacity, np.int64)
        for name, times in wanted.items():
            entry = nodes.images.entry(name)
            if entry is not None:
                # Divide first, then multiply: upstream's order, it decides the last digit.
                scaled = int(float(entry.size_bytes) * (float(len(entry.rows)) / float(len(nodes))))
                # Nothing beyond the upper limit can matter, so the sum cannot overflow.
                sums[entry.array()] += min(scaled, largest) * times
        clamped = np.clip(sums[rows], _MIN_BYTES, largest)
        return MAX_SCORE * (clamped - _MIN_BYTES) // (largest - _MIN_BYTES)


def image_names(pod: Pod) -> Iterator[str]:
    """Images of init containers, containers and image volumes, with ``:latest`` where there is no tag."""
    for container in (*pod.spec.initContainers, *pod.spec.containers):
        yield normalized_image_name(container.image)
    for volume in pod.spec.volumes:
        if volume.image is not None:
            yield normalized_image_name(volume.image.reference)


def normalized_image_name(name: str) -> str:
    """``name`` with ``:latest`` unless a tag or digest follows its last slash."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
