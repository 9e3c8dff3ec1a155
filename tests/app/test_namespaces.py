"""A scheduler that serves some namespaces: it places and preempts there alone, and counts everybody."""

from __future__ import annotations

from typing import Any

from tests.app.objects import Object, claim, gpu_class, gpu_slice, node, pod
from tests.app.test_preemption import classes
from tests.app.world import World, world

OURS = frozenset({"ours"})


def there(item: Object, namespace: str) -> Object:
    """The object in another namespace."""
    item["metadata"]["namespace"] = namespace
    return item


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def namespaces() -> list[Object]:
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("ours", "theirs")]


async def create(w: World, namespace: str, name: str, **options: Any) -> None:
    await w.call("POST", pods_path(namespace), there(pod(name, **options), namespace))


async def until_bound(w: World, namespace: str, name: str) -> None:
    async def bound() -> bool:
        return name in await w.bound(namespace)

    await w.until(bound, f"{name} is bound")


async def test_pods_elsewhere_are_left_to_others() -> None:
    """A Pod of our name in a namespace that is not served is neither tried nor told anything."""
    async with world([*namespaces(), node("n1")], namespaces=OURS) as w:
        await create(w, "theirs", "left")
        await create(w, "ours", "taken")
        await until_bound(w, "ours", "taken")
        found = await w.pod("left", "theirs")
        assert "nodeName" not in found["spec"]
        assert "conditions" not in found.get("status", {})


async def test_what_pods_elsewhere_take_counts() -> None:
    """Room and devices that Pods of other namespaces have are not there for ours."""
    holder = there(claim("held"), "theirs")
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    other = {"resource": "pods", "name": "user", "uid": "u"}
    holder["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [other]}
    user = there(pod("user", claim="held", cpu="7", nodeName="n1"), "theirs")
    user["metadata"]["uid"] = "u"
    objects = [*namespaces(), node("n1"), gpu_class(), gpu_slice("n1", 2), holder, user]
    objects += [there(claim("one"), "ours"), there(claim("two", 2), "ours")]
    async with world(objects, namespaces=OURS) as w:
        for name, options in (("big", {"cpu": "2"}), ("both", {"claim": "two"}), ("fits", {"claim": "one"})):
            await create(w, "ours", name, **options)
        await until_bound(w, "ours", "fits")

        async def told() -> bool:
            pods = [await w.pod(name, "ours") for name in ("big", "both")]
            return all(item.get("status", {}).get("conditions") for item in pods)

        await w.until(told, "the others are told to wait")
        assert set(await w.bound("ours")) == {"fits"}


async def test_pods_elsewhere_are_never_victims() -> None:
    """A less important Pod of another namespace stays, one of ours goes."""
    objects = [*namespaces(), *classes(), node("n1", cpu="1"), node("n2", cpu="1")]
    options = {"priorityClassName": "low", "terminationGracePeriodSeconds": 0, "cpu": "1"}
    theirs = there(pod("theirs", **options, nodeName="n1"), "theirs")
    async with world([*objects, theirs], namespaces=OURS) as w:
        await create(w, "ours", "first", **options)
        await until_bound(w, "ours", "first")
        await create(w, "ours", "urgent", priorityClassName="high", cpu="1")
        await until_bound(w, "ours", "urgent")
        assert (await w.bound("ours"))["urgent"] == "n2"
        assert (await w.bound("theirs")) == {"theirs": "n1"}
        await create(w, "ours", "too-much", priorityClassName="high", cpu="1")

        async def told() -> bool:
            return bool((await w.pod("too-much", "ours")).get("status", {}).get("conditions"))

        await w.until(told, "the Pod that only others could make room for is told to wait")
        assert (await w.bound("theirs")) == {"theirs": "n1"}
