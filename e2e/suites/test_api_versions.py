"""The scheduler on API servers that serve only an older version of resource.k8s.io."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.api import PODS, Object, Resource
from e2e.controlplane import ControlPlane
from e2e.controlplane.fixtures import make_api
from e2e.driver import add_node
from e2e.objects import pod
from e2e.scheduler import SchedulerProcess, condition
from e2e.waiting import eventually

NS = "default"
DRIVER = "gpu.example.com"
RESOURCE = "example.com/gpu"
TAINT = {"key": "example.com/broken", "effect": "NoSchedule"}


def resource(version: str, plural: str, kind: str, *, namespaced: bool = True) -> Resource:
    """A kind of the group in a version."""
    return Resource("resource.k8s.io", version, plural, kind, namespaced=namespaced)


def request(version: str, name: str, count: int) -> Object:
    """A request in the version's shape."""
    asked: Object = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": count}
    return {"name": name, **asked} if version == "v1beta1" else {"name": name, "exactly": asked}


def gpu(version: str, name: str, **fields: Any) -> Object:
    """A device in the version's shape."""
    fields = {"attributes": {"model": {"string": "a"}}, **fields}
    return {"name": name, "basic": fields} if version == "v1beta1" else {"name": name, **fields}


@pytest.mark.parametrize(("version", "rules_version"), [("v1beta2", "v1beta2"), ("v1beta1", "v1alpha3")])
async def test_only_a_beta_version_is_served(
    own_control_plane: Callable[..., ControlPlane], tmp_path: Path, version: str, rules_version: str
) -> None:
    """Found by discovery; claims are allocated and reserved, slices and rules count, claims of our own are created."""
    versions = ("v1", "v1beta2", "v1beta1", "v1alpha3")
    served = {f"resource.k8s.io/{name}": name in (version, rules_version) for name in versions}
    plane = await asyncio.to_thread(own_control_plane, runtime_config=served, controllers=())
    claims = resource(version, "resourceclaims", "ResourceClaim")
    spec: Object = {
        "selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "a"'}}],
        "extendedResourceName": RESOURCE,
    }
    async with make_api(plane) as api:
        await add_node(api, "n")
        classes = resource(version, "deviceclasses", "DeviceClass", namespaced=False)
        await api.create(classes, {"metadata": {"name": DRIVER}, "spec": spec})
        devices = [gpu(version, "gpu-0"), gpu(version, "gpu-1"), gpu(version, "gpu-2")]
        pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
        published = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": devices}
        slices = resource(version, "resourceslices", "ResourceSlice", namespaced=False)
        await api.create(slices, {"metadata": {"name": "n"}, "spec": published})
        rules = resource(rules_version, "devicetaintrules", "DeviceTaintRule", namespaced=False)
        tainted = {"deviceSelector": {"driver": DRIVER, "device": "gpu-1"}, "taint": TAINT}
        await api.create(rules, {"metadata": {"name": "broken"}, "spec": tainted})
        for name, count in (("one", 1), ("three", 3)):
            asked = {"devices": {"requests": [request(version, "r", count)]}}
            await api.create(claims, {"metadata": {"name": name}, "spec": asked}, NS)
        with SchedulerProcess(tmp_path, plane.kubeconfig_for()) as scheduler:

            async def bound(name: str) -> bool:
                return bool((await api.get(PODS, name, NS))["spec"].get("nodeName"))

            async def refused(name: str) -> bool:
                message = condition(await api.get(PODS, name, NS)).get("message", "")
                return bool(message.startswith("0/1 nodes are available: 1 cannot allocate all claims."))

            await api.create(PODS, pod("one", claims={"gpu": "one"}), NS)
            await eventually(lambda: bound("one"), "the Pod with a claim is bound")
            found = await api.get(claims, "one", NS)
            assert found["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
            assert [consumer["name"] for consumer in found["status"]["reservedFor"]] == ["one"]
            await api.create(PODS, pod("three", claims={"gpu": "three"}), NS)
            await eventually(lambda: refused("three"), "one device is taken, another is tainted")
            one = {RESOURCE: "1"}
            await api.create(PODS, pod("extended", requests=one, limits=one), NS)
            await eventually(lambda: bound("extended"), "the Pod with an extended resource is bound")
            told = (await api.get(PODS, "extended", NS))["status"]["extendedResourceClaimStatus"]
            made = await api.get(claims, told["resourceClaimName"], NS)
            assert made["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-2"
            assert f"version={version}" in scheduler.log() or f'"version":"{version}"' in scheduler.log()
