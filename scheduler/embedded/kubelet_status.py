"""The statuses that a kubelet writes, as strategic merge patches of .status; pure, the time is passed in."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from scheduler.embedded.kubelet_admission import Rejection

Object = dict[str, Any]


def _time(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _conditions(ready: bool, now: datetime, reason: str | None = None) -> list[Object]:
    """Conditions beside PodScheduled, which the merge leaves as the scheduler wrote it."""
    conditions: list[Object] = [{"type": "Initialized", "status": "True", "lastTransitionTime": _time(now)}]
    for kind in ("PodReadyToStartContainers", "ContainersReady", "Ready"):
        condition: Object = {"type": kind, "status": str(ready), "lastTransitionTime": _time(now)}
        if reason is not None and kind != "PodReadyToStartContainers":
            condition["reason"] = reason
        conditions.append(condition)
    return conditions


def _container_statuses(pod: Object, state: Object, *, ready: bool) -> list[Object]:
    return [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": state,
        }
        for container in pod["spec"]["containers"]
    ]


def running_status(pod: Object, pod_ip: str, now: datetime) -> Object:
    """Phase Running, ready, with an address."""
    return {
        "phase": "Running",
        "startTime": _time(now),
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "conditions": _conditions(True, now),
        "containerStatuses": _container_statuses(pod, {"running": {"startedAt": _time(now)}}, ready=True),
    }


def finished_status(pod: Object, phase: str, now: datetime) -> Object:
    """Phase Succeeded or Failed after the containers ended."""
    code, word = (0, "Completed") if phase == "Succeeded" else (1, "Error")
    started = pod.get("status", {}).get("startTime") or _time(now)
    terminated = {"exitCode": code, "reason": word, "startedAt": started, "finishedAt": _time(now)}
    return {
        "phase": phase,
        "conditions": _conditions(False, now, "PodCompleted" if phase == "Succeeded" else "PodFailed"),
        # null drops the running state of the merge's other side: a state has exactly one member.
        "containerStatuses": _container_statuses(pod, {"running": None, "terminated": terminated}, ready=False),
    }


def failed_status(pod: Object, rejection: Rejection, now: datetime) -> Object:
    """The final status of a Pod that its node did not admit."""
    return {
        "phase": "Failed",
        "reason": rejection.reason,
        "message": f"Pod was rejected: {rejection.message}",
        "startTime": _time(now),
    }
