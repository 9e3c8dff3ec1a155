"""Nodes of which the same can be said are one group, and the groups come in order of nearness."""

from __future__ import annotations

from tests.app.objects import gpu_class, node, pod
from tests.explain.clusters import DRIVER, Object, device, explained, held, request, slice_of, want

UUID = f'device.attributes["{DRIVER}"].uuid == "X"'


def of_attribute(name: str, **values: str) -> Object:
    """A device with string attributes."""
    return {"name": name, "attributes": {key: {"string": value} for key, value in values.items()}}


def test_numbers_of_devices_do_not_matter_to_a_pod_without_claims() -> None:
    """Nodes with none, one and two devices refuse it for the same reason, in one group."""
    items = [node(f"n{n}", cpu="1") for n in range(6)]
    items += [slice_of(f"n{n}", [device(f"d{d}") for d in range(n % 3)]) for n in range(6) if n % 3]
    found, text = explained([gpu_class(), *items, pod("p", cpu="2")])
    assert len(found.nodes) == 1
    assert text.count("Insufficient cpu") == 2  # the message, and the group


def test_values_that_differ_from_device_to_device_do_not_part_nodes() -> None:
    """Each device has a uuid: one group, with the number of values and a few of them."""
    items = [gpu_class(), want(request("r", 1, UUID)), pod("p", claim="want")]
    for n in range(24):
        items += [node(f"n{n}"), slice_of(f"n{n}", [of_attribute(f"d{d}", uuid=f"GPU-{n}-{d}") for d in range(2)])]
    found, text = explained(items)
    (group,) = found.nodes
    assert len(group.nodes) == 24
    (part,) = group.claims[0].requests[0].refused
    assert part.count == 2
    assert len(part.values[f"{DRIVER}/uuid"]) == 48
    assert f"{DRIVER}/uuid has 48 different values, such as GPU-0-0, GPU-0-1, GPU-1-0, GPU-1-1" in text


def test_few_values_are_counted_over_all_nodes() -> None:
    """How many devices have each, and that it is not one node's number."""
    selector = f'device.attributes["{DRIVER}"].model == "B200"'
    items = [gpu_class(), want(request("r", 1, selector)), pod("p", claim="want")]
    for n in range(5):
        items += [node(f"n{n}"), slice_of(f"n{n}", [device("d", model="H100" if n else "A100")])]
    _, text = explained(items)
    assert "1 selector false" in text
    assert f"{DRIVER}/model is H100 (4), A100 (1) over all nodes" in text


def test_a_name_that_is_absent_is_told_before_values() -> None:
    """However many values there are."""
    devices = [of_attribute(f"d{n}", uuid=f"u{n}") for n in range(9)] + [of_attribute("bare", uid="x")]
    selector = f'"uuid" in device.attributes["{DRIVER}"] && {UUID}'
    items = [node("n1"), gpu_class(), slice_of("n1", devices), want(request("r", 1, selector)), pod("p", claim="want")]
    _, text = explained(items)
    assert f"{DRIVER}/uuid has 10 different values, such as absent" in text


def test_devices_that_several_nodes_see_are_counted_once() -> None:
    """A device of the network is the same one from every node."""
    shared = slice_of(None, [of_attribute("d", uuid="u")])
    items = [
        gpu_class(),
        want(request("r", 1, UUID)),
        pod("p", claim="want"),
        shared,
        *(node(f"n{n}") for n in range(3)),
    ]
    found, _ = explained(items)
    (group,) = found.nodes
    assert group.claims[0].requests[0].refused[0].values == {f"{DRIVER}/uuid": {"u": 1}}


def test_the_node_where_most_devices_would_do_comes_first() -> None:
    """Before larger groups with fewer, nodes whose pools cannot be used, and nodes that another plugin refuses, too."""
    items = [gpu_class(), want(request("r", 4)), pod("p", claim="want")]
    for n in range(3):
        items += [node(f"few{n}"), slice_of(f"few{n}", [device("a"), device("b")]), held(f"h{n}", f"few{n}", "a")]
    items += [node("near"), slice_of("near", [device(name) for name in "abc"])]
    items += [node("torn"), slice_of("torn", [device(name) for name in "abcd"], count=2)]
    full = node("cordoned") | {"spec": {"unschedulable": True}}
    items += [full, slice_of("cordoned", [device(name) for name in "abc"])]
    found, text = explained(items)
    assert [group.nodes[0] for group in found.nodes] == ["near", "few0", "torn", "cordoned"]
    assert text.index("node near") < text.index("3 nodes: few0")
