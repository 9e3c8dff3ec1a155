"""Late binding through the whole service, with the test as volume controller and provisioner."""

from __future__ import annotations

from typing import Any

from tests.app.objects import node, pod
from tests.app.world import World, world

Object = dict[str, Any]
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
PODS = "/api/v1/namespaces/default/pods"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
AT_ONCE = {"gracePeriodSeconds": 0}
MERGE = "application/merge-patch+json"


def late_class(provisioner: str) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volume_claim(name: str) -> Object:
    spec = {
        "storageClassName": "late",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def local_volume(name: str, node_name: str) -> Object:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node_name]}]}
    spec = {
        "storageClassName": "late",
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "local": {"path": "/data"},
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"phase": "Available"},
    }


def with_claim(name: str, claim: str, **spec: Any) -> Object:
    return pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}], **spec)


async def selected(running: World, claim: str) -> str | None:
    """The node written into a claim."""
    found = await running.call("GET", f"{CLAIMS}/{claim}")
    node_name: str | None = found["metadata"].get("annotations", {}).get(SELECTED_NODE)
    return node_name


async def complete(running: World, claim: str, volume: str) -> None:
    """What the volume controller writes once both sides are bound."""
    body = {
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume},
    }
    await running.call("PATCH", f"{CLAIMS}/{claim}", body, MERGE)


async def is_bound(running: World, name: str) -> bool:
    return name in await running.bound()


async def test_a_volume_is_promised_and_the_pod_waits_for_the_controller() -> None:
    """The claim is written into the volume; the Pod is bound only after the controller has bound the claim."""
    objects = [node("n1"), node("n2"), late_class("kubernetes.io/no-provisioner"), volume_claim("data")]
    async with world(objects) as running:
        await running.call("POST", VOLUMES, local_volume("disk", "n2"))
        await running.call("PATCH", f"{VOLUMES}/disk/status", {"status": {"phase": "Available"}}, MERGE)
        await running.call("POST", PODS, with_claim("consumer", "data"))

        async def promised() -> bool:
            return "claimRef" in (await running.call("GET", f"{VOLUMES}/disk"))["spec"]

        await running.until(promised, "the volume is promised")
        stored = await running.call("GET", f"{VOLUMES}/disk")
        assert stored["spec"]["claimRef"]["name"] == "data"
        assert stored["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"
        assert await running.bound() == {}
        await complete(running, "data", "disk")
        await running.until(lambda: is_bound(running, "consumer"), "the Pod is bound")
        assert await running.bound() == {"consumer": "n2"}


async def test_b121_the_chosen_node_is_written_changed_and_cleared() -> None:
    """A provisioner that gives up makes the Pod choose again; a deleted Pod leaves no node in its claim."""
    objects = [node("n1"), node("n2"), late_class("csi.example.com"), volume_claim("data")]
    async with world(objects) as running:
        await running.call("POST", PODS, with_claim("consumer", "data", nodeSelector={"kubernetes.io/hostname": "n1"}))

        async def chosen(claim: str, wanted: str | None) -> bool:
            return await selected(running, claim) == wanted

        await running.until(lambda: chosen("data", "n1"), "n1 is written into the claim")
        await running.call("PATCH", f"{CLAIMS}/data", {"metadata": {"annotations": {SELECTED_NODE: None}}}, MERGE)

        async def told() -> bool:
            conditions = (await running.pod("consumer")).get("status", {}).get("conditions", [])
            text = 'running PreBind plugin "VolumeBinding": binding volumes: selectedNode annotation reset for PVC '
            return any(condition.get("message") == f'{text}"data"' for condition in conditions)

        await running.until(told, "the Pod is told that provisioning failed")
        await running.until(lambda: chosen("data", "n1"), "the Pod tries again")
        await running.call("DELETE", f"{PODS}/consumer", AT_ONCE)
        await running.until(lambda: chosen("data", None), "the claim is free again")
        await running.call("POST", PODS, with_claim("next", "data", nodeSelector={"kubernetes.io/hostname": "n2"}))
        await running.until(lambda: chosen("data", "n2"), "the next Pod's node is written")
        volume = local_volume("made", "n2")
        await running.call("POST", VOLUMES, volume)
        await complete(running, "data", "made")
        await running.until(lambda: is_bound(running, "next"), "the next Pod is bound")
        assert await selected(running, "data") == "n2"


async def test_b122_volumes_that_never_come_hold_nobody_up() -> None:
    """More Pods than there are places for commits wait for volumes; a hundred others are bound meanwhile."""
    stuck = 80
    claims = [volume_claim(f"c{index}") for index in range(stuck)]
    objects = [node("n1", cpu="64"), late_class("csi.example.com"), *claims]
    async with world(objects) as running:
        for index in range(stuck):
            await running.call("POST", PODS, with_claim(f"stuck{index}", f"c{index}", cpu="1m"))

        async def all_wait() -> bool:
            found = await running.call("GET", CLAIMS)
            return all(SELECTED_NODE in item["metadata"].get("annotations", {}) for item in found["items"])

        await running.until(all_wait, "every claim has its node", timeout_s=30)
        wide = node("n2", cpu="64")
        await running.call("POST", "/api/v1/nodes", wide)
        for index in range(100):
            await running.call("POST", PODS, pod(f"plain{index}", cpu="1m"))

        async def others_bound() -> bool:
            return len(await running.bound()) == 100

        await running.until(others_bound, "a hundred other Pods are bound", timeout_s=30)
        for index in range(stuck):  # so that nobody waits ten minutes for the end of the test
            await running.call("DELETE", f"{PODS}/stuck{index}", AT_ONCE)
        await running.until(lambda: _nobody_in_flight(running), "the waits end with their Pods")


async def _nobody_in_flight(running: World) -> bool:
    return running.service.state.assumed_count() == 0


async def test_a_stop_does_not_wait_for_volumes() -> None:
    """A Pod whose volume has not come gives its place back when the scheduler stops; the claim is free for the next."""
    async with world([node("n1"), late_class("csi.example.com"), volume_claim("data")]) as running:
        await running.call("POST", PODS, with_claim("consumer", "data"))

        async def chosen(wanted: str | None) -> bool:
            return await selected(running, "data") == wanted

        await running.until(lambda: chosen("n1"), "the node is written into the claim")
        running.service.stop()
        await running.until(lambda: chosen(None), "the claim is free again")
        assert await running.bound() == {}
