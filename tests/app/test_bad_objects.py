"""Objects no API server of today would store, but an older or a broken one may hold: told on the Pod, nobody stops.

What the real server lets in is in e2e/suites/test_bad_input.py; these would be refused there when they are created.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.explain.devices import device_reasons
from tests.app.objects import claim, gpu_class, gpu_slice, node, pod, template
from tests.app.race import CONFIG, create, shown, until_bound
from tests.app.world import World, world

Object = dict[str, Any]


def broken_class(expression: str) -> Object:
    """A class with this selector."""
    body = gpu_class("broken")
    body["spec"]["selectors"] = [{"cel": {"expression": expression}}]
    return body


def store_anyway(w: World, table: str, key: tuple[str, str], change: Callable[[Object], None]) -> None:
    """Store an object past the server's validation; watches show it."""
    changed = copy.deepcopy(w.server.store.table(table).records[key].obj)
    change(changed)
    w.server.store.put(table, key, changed)


async def told(w: World, name: str, text: str, *, condition: bool = True) -> None:
    """Wait until an event of the Pod, and its condition unless the server refuses any change of it, hold the text."""

    async def seen() -> bool:
        conditions = (await w.pod(name))["status"].get("conditions") or []
        events = (await w.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
        notes = [e["note"] for e in events if e["regarding"]["name"] == name and e["reason"] == "FailedScheduling"]
        written = any(text in c.get("message", "") for c in conditions)
        return written is condition and any(text in note for note in notes)

    await w.until(seen, f"condition and event of {name} say {text!r}")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("device.driver ==", "syntax error: unexpected end of expression"),
        ("device.nothing", "undefined field 'nothing'"),
        ("1 + 1", "must evaluate to bool"),
    ],
)
async def test_a_selector_that_does_not_compile(expression: str, text: str) -> None:
    """The Pod is told what is wrong with the selector; a Pod of another class is bound before and after."""
    objects = [gpu_class(), broken_class(expression), claim("bad", class_name="broken"), template("one")]
    async with world([*objects, node("n1"), gpu_slice("n1", 2)], CONFIG) as w:
        await create(w, pod("bad", claim="bad"), pod("good", template="one"))
        await until_bound(w, "good")
        await told(w, "bad", text)
        await create(w, pod("good-again", template="one"))
        await until_bound(w, "good", "good-again")


async def test_an_amount_of_a_pod_that_is_nonsense() -> None:
    """The Pod is told which of its amounts cannot be read; others are bound before and after."""

    def spoil(body: Object) -> None:
        del body["spec"]["schedulingGates"]
        body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "nonsense"

    async with world([node("n1")], CONFIG) as w:
        await create(w, pod("bad", schedulingGates=[{"name": "example.com/wait"}]), pod("good"))
        await until_bound(w, "good")
        store_anyway(w, "pods", ("default", "bad"), spoil)
        await told(w, "bad", 'requests[cpu]: "nonsense" is not a quantity', condition=False)
        await create(w, pod("good-again"))
        await until_bound(w, "good", "good-again")


async def test_an_amount_of_a_node_that_is_nonsense() -> None:
    """The amount counts as none: the Pod waits for that node alone with its reason, and goes to another node."""
    async with world([node("n1")], CONFIG) as w:
        store_anyway(w, "nodes", ("", "n1"), lambda body: body["status"]["allocatable"].update(cpu="nonsense"))
        await shown(lambda: bool(w.service.state.nodes.problems))
        await create(w, pod("p"))
        await told(w, "p", "0/1 nodes are available: 1 Insufficient cpu.")
        await w.call("POST", "/api/v1/nodes", node("n2"))
        assert await until_bound(w, "p") == {"p": "n2"}


async def test_a_capacity_of_a_device_that_is_nonsense() -> None:
    """The slice gives no devices and its fault is among the reasons; other slices and other Pods are served."""
    slices = [gpu_slice("n1", 1), gpu_slice("n2", 1)]
    async with world([gpu_class(), template("one"), node("n1"), node("n2"), *slices], CONFIG) as w:

        def spoil(body: Object) -> None:
            body["spec"]["devices"][0]["capacity"] = {"memory": {"value": "nonsense"}}

        store_anyway(w, "resourceslices", ("", "n1-gpu"), spoil)
        await shown(lambda: w.service.reflectors["ResourceSlice"].revision >= w.server.store.revision)
        await create(w, pod("a", template="one"), pod("b", template="one"), pod("plain"))
        assert (await until_bound(w, "a", "plain"))["a"] == "n2"
        await told(w, "b", "0/2 nodes are available: 2 cannot allocate all claims.")
        (waiting,) = (p for p in w.service.state.pods.values() if p.metadata.name == "b")
        first, _ = device_reasons(w.service.profiles["dra-scheduler"], waiting, w.service.state, 0.0)
        assert first.rejections[0].detail["slice"] == "n1-gpu"
        assert "device gpu-0: quantities must match" in str(first.rejections[0].detail["because"])
