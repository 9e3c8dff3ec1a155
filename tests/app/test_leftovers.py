"""A leader died between claim and Binding, and the Pod cannot be tried again: others get its devices."""

from __future__ import annotations

import pytest

from scheduler.edge import intake
from tests.app.objects import Object, gpu_class, gpu_slice, node, pod, template
from tests.app.race import CONFIG, allocated, create, until_bound
from tests.app.world import world


def held(name: str, uid: str) -> Object:
    """A claim with the only device, reserved for a Pod."""
    found = allocated(name, "n1", "gpu-0")
    found["status"]["reservedFor"] = [{"resource": "pods", "name": "stuck", "uid": uid}]
    return found


async def test_devices_of_a_pod_that_is_held_back_serve_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One claim of the Pod has devices, the other does not exist: the next Pod gets in, and the Pod is told why not."""
    monkeypatch.setattr(intake, "GATE_REPORT_S", 0.1)
    stuck = pod("stuck", claim="held")
    stuck["metadata"]["uid"] = "stuck-uid"
    stuck["spec"]["resourceClaims"].append({"name": "more", "resourceClaimName": "missing"})
    objects = [gpu_class(), template("one"), node("n1"), gpu_slice("n1", 1), held("held", "stuck-uid"), stuck]
    async with world(objects, CONFIG) as w:
        await create(w, pod("next", template="one"))
        await until_bound(w, "next")
        claim = await w.call("GET", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/held")
        assert not (claim.get("status") or {}).get("allocation")
        assert not (claim.get("status") or {}).get("reservedFor")
        assert not (await w.pod("stuck"))["spec"].get("nodeName")
