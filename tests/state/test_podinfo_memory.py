"""A Pod and what is derived of it die with their last user, without the collector."""

from __future__ import annotations

import gc
import weakref

from scheduler.api.core import Pod
from scheduler.api.kinds import POD, decode
from scheduler.state.podinfo import PodInfo, pod_info

BODY = b'{"metadata":{"name":"p","namespace":"n","uid":"u"},"spec":{"containers":[{"name":"c"}]}}'


def test_one_info_per_pod_while_it_is_used() -> None:
    """Whoever asks meanwhile gets the same one."""
    pod: Pod = decode(POD, BODY)
    info = pod_info(pod)
    assert pod_info(pod) is info
    assert info.pod is pod


def test_no_cycle_keeps_a_version_of_a_pod() -> None:
    """Twenty Pods a second, each in five versions: cycles would grow until the oldest generation is collected."""
    pod: Pod = decode(POD, BODY)
    watched: weakref.ReferenceType[PodInfo] = weakref.ref(pod_info(pod))
    assert watched() is None, "nobody uses it"
    info = pod_info(pod)
    watched = weakref.ref(info)
    gc.disable()
    try:
        del pod
        assert watched() is not None, "it keeps its Pod"
        del info
        assert watched() is None
    finally:
        gc.enable()
