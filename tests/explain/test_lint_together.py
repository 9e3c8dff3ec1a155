"""Lint of whole claims agrees with the scheduler: made-up claims on made-up nodes that nobody uses."""

from __future__ import annotations

import random

import pytest

from scheduler.explain.lint import lint
from tests.app.objects import gpu_class, node, pod
from tests.explain.clusters import DRIVER, Object, device, explained, request, slice_of, snapshot, want

MODEL = f'device.attributes["{DRIVER}"].model'
SHARED = {"allowMultipleAllocations": True}


def _device(source: random.Random, name: str) -> Object:
    return device(name, model=source.choice("AB"), **(SHARED if source.random() < 0.2 else {}))


def _request(source: random.Random, name: str) -> Object:
    """One of every form but All, whose errors on one node end the attempt on all."""
    selectors = [f'{MODEL} == "{source.choice("AB")}"'] if source.random() < 0.4 else []
    form = source.random()
    if form < 0.2:
        subs = [request(f"s{number}", source.randint(1, 3), *selectors) for number in range(2)]
        return {"name": name, "firstAvailable": [{"name": sub["name"], **sub["exactly"]} for sub in subs]}
    if form < 0.4:
        share = {"requests": {"memory": source.choice(["10Gi", "20Gi", "30Gi"])}}
        return request(name, source.randint(1, 2), *selectors, capacity=share)
    return request(name, source.randint(1, 3), *selectors)


def _constraint(source: random.Random, names: list[str]) -> Object:
    kind = source.choice(["matchAttribute", "distinctAttribute"])
    return {kind: f"{DRIVER}/model", **({"requests": [source.choice(names)]} if source.random() < 0.4 else {})}


def _cluster(source: random.Random) -> list[Object]:
    items = [gpu_class()]
    for name in [f"n{number}" for number in range(source.randint(1, 3))]:
        items += [node(name), slice_of(name, [_device(source, f"d{n}") for n in range(source.randint(1, 4))])]
    if source.random() < 0.2:
        items.append(slice_of(None, [_device(source, "far")]))
    names = [f"r{number}" for number in range(source.randint(1, 3))]
    constraints = [_constraint(source, names) for _ in range(source.randint(0, 2))]
    return [*items, want(*(_request(source, name) for name in names), constraints=constraints), pod("p", claim="want")]


@pytest.mark.parametrize("seed", range(60))
def test_an_error_stands_for_a_pod_that_waits(seed: int) -> None:
    """Neither a finding about a claim that gets its devices, nor silence about one that gets none."""
    items = _cluster(random.Random(seed))
    snap = snapshot(items)
    found = lint(snap.state, {}, [], snap.objects.raw, snap.profiles)
    assert found.caveats == []
    assert found.troubled == (explained(items)[0].phase != "fits"), found.findings
