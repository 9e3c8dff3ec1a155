"""Server-side defaults: the fields the API server fills in when it decodes an object, and at creation.

Only those that a scheduler, a kubelet or a controller can notice. Source: k8s.io/kubernetes 1.37, defaults.go of
pkg/apis/*/v1, and the admission plugins Priority and DefaultTolerationSeconds.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler.api.names import UPSTREAM_SCHEDULER_NAME
from scheduler.embedded.status import Json


def apply(plural: str, obj: Json, now: str) -> None:
    """Fills in the defaults of one decoded object, in place. Idempotent; `now` is RFC 3339 in whole seconds."""
    fill = _DEFAULTS.get(plural)
    if fill is not None:
        fill(obj, now)


def _pod(obj: Json, _now: str) -> None:
    spec = obj.setdefault("spec", {})
    pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for condition in (obj.get("status") or {}).get("conditions") or ():
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)


def pod_spec(spec: Json) -> None:
    """Defaults of a PodSpec, alone or in a workload's template."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec["schedulerName"] = spec.get("schedulerName") or UPSTREAM_SCHEDULER_NAME
    host_network = spec.get("hostNetwork") is True
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        _container(container, host_network)


def _container(container: Json, host_network: bool) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = "Always" if _latest(container.get("image", "")) else "IfNotPresent"
    resources = container.setdefault("resources", {})
    limits = resources.get("limits") or {}
    if limits:
        requests = resources.setdefault("requests", {})
        for name, amount in limits.items():
            requests.setdefault(name, amount)
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network:
            port.setdefault("hostPort", port.get("containerPort"))


def _latest(image: str) -> bool:
    if "@" in image:
        return False
    last = image.rsplit("/", 1)[-1]
    return ":" not in last or last.endswith(":latest")


def _workload(obj: Json, _now: str) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    template = spec.get("template")
    if isinstance(template, dict):
        pod_spec(template.setdefault("spec", {}))


def _job(obj: Json, _now: str) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("parallelism", 1)
    spec.setdefault("suspend", False)
    template = spec.get("template")
    if isinstance(template, dict):
        pod_spec(template.setdefault("spec", {}))


def _claim(obj: Json, _now: str) -> None:
    claim_spec(obj.setdefault("spec", {}))
    status = obj.setdefault("status", {})
    allocation = status.get("allocation")
    if allocation is None:
        return
    allocation.setdefault("devices", {})
    for result in (allocation.get("devices") or {}).get("results") or ():
        _tolerations(result)


def _claim_template(obj: Json, _now: str) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("metadata", {})
    claim_spec(spec.setdefault("spec", {}))


def claim_spec(spec: Json) -> None:
    """Defaults of a ResourceClaimSpec, alone or in a template."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        exactly = request.get("exactly")
        if isinstance(exactly, dict):
            _device_request(exactly)
        for alternative in request.get("firstAvailable") or ():
            _device_request(alternative)


def _device_request(request: Json) -> None:
    request["allocationMode"] = request.get("allocationMode") or "ExactCount"
    if request["allocationMode"] == "ExactCount":
        request["count"] = request.get("count") or 1
    _tolerations(request)


def _tolerations(owner: Json) -> None:
    for toleration in owner.get("tolerations") or ():
        toleration["operator"] = toleration.get("operator") or "Equal"


def _slice(obj: Json, now: str) -> None:
    for device in (obj.get("spec") or {}).get("devices") or ():
        for taint in device.get("taints") or ():
            taint["timeAdded"] = taint.get("timeAdded") or now


def _taint_rule(obj: Json, now: str) -> None:
    obj.setdefault("status", {})
    taint = (obj.get("spec") or {}).get("taint")
    if isinstance(taint, dict):
        taint["timeAdded"] = taint.get("timeAdded") or now


def _namespace(obj: Json, _now: str) -> None:
    name = obj["metadata"].get("name")
    if name:
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name
    obj.setdefault("status", {}).setdefault("phase", "Active")


_NODE_INFO = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
)


def _node(obj: Json, _now: str) -> None:
    obj.setdefault("spec", {})
    status = obj.setdefault("status", {})
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status.setdefault("nodeInfo", dict.fromkeys(_NODE_INFO, ""))
    for condition in status.get("conditions") or ():
        condition.setdefault("lastHeartbeatTime", None)
        condition.setdefault("lastTransitionTime", None)
    if "allocatable" not in status and status.get("capacity"):
        status["allocatable"] = dict(status["capacity"])


def _storage_class(obj: Json, _now: str) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _volume_claim(obj: Json, _now: str) -> None:
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _volume(obj: Json, _now: str) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _service(obj: Json, _now: str) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    obj.setdefault("status", {}).setdefault("loadBalancer", {})


def _priority_class(obj: Json, _now: str) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _budget(obj: Json, _now: str) -> None:
    status = obj.setdefault("status", {})
    for name in ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"):
        status.setdefault(name, 0)


def _event(obj: Json, _now: str) -> None:
    obj.setdefault("eventTime", None)
    obj.setdefault("firstTimestamp", None)
    obj.setdefault("lastTimestamp", None)
    obj.setdefault("source", {})
    obj.setdefault("reportingComponent", "")
    obj.setdefault("reportingInstance", "")


def _secret(obj: Json, _now: str) -> None:
    obj.setdefault("type", "Opaque")


_DEFAULTS: dict[str, Callable[[Json, str], None]] = {
    "pods": _pod,
    "deployments": _workload,
    "replicasets": _workload,
    "replicationcontrollers": _workload,
    "statefulsets": _workload,
    "jobs": _job,
    "resourceclaims": _claim,
    "resourceclaimtemplates": _claim_template,
    "resourceslices": _slice,
    "devicetaintrules": _taint_rule,
    "namespaces": _namespace,
    "nodes": _node,
    "storageclasses": _storage_class,
    "persistentvolumeclaims": _volume_claim,
    "persistentvolumes": _volume,
    "services": _service,
    "priorityclasses": _priority_class,
    "secrets": _secret,
    "events": _event,
    "poddisruptionbudgets": _budget,
}
