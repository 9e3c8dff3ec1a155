"""--verify-caches: whatever is kept is spoilt in turn, behind everybody's back, and the next turn says what differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.bench.micro import Bench
from e2e.bench.workloads import WORKLOADS
from e2e.fuzz.world import ALL_GATES, World
from scheduler.app.service import Service
from scheduler.errors import InternalError

Spoil = Callable[[Service], Any]


def _vectors(service: Service) -> list[Any]:
    """The kept answers of every class that was used in the last turns."""
    (profile,) = service.profiles.values()
    return [found for found in profile.classes._used.values() if found.fits(service.state.nodes)]


def _row(service: Service, name: str = "n1") -> int:
    row = service.state.nodes.row_of(name)
    assert row is not None
    return row


def _filter_answer(service: Service) -> None:
    found = _vectors(service)[0]
    found._verdicts[0].values[_row(service)] += 1


def _raw_score(service: Service) -> None:
    found = next(found for found in _vectors(service) if found._raws)
    found._raws[0].values[_row(service)] += 1


def _sum_of_scores(service: Service) -> None:
    found = next(found for found in _vectors(service) if found._raws)
    found._plain[_row(service)] += 1


def _holding(service: Service) -> None:
    service.state.devices.ledger._holdings.popitem()


def _usage(service: Service) -> None:
    usages = service.state.devices.ledger._usages
    name, (view, versions, _) = next(iter(usages.items()))
    other = next(usage for node, (_, _, usage) in usages.items() if node != name)
    usages[name] = (view, versions, other)


def _topology_class(service: Service) -> None:
    classes = next(iter(service.state.topology._classes.values()))
    next(iter(classes.values())).rows.add(_row(service), 1)


def _attached(service: Service) -> None:
    attached = service.state.volumes.attached
    attached._attachments_on.setdefault("n2", set()).add("never")


SPOILT: dict[str, tuple[Spoil, str]] = {
    "Pods counted on a node": (lambda s: s.state.nodes.pod_counts.__setitem__(_row(s), 9), "n1"),
    "amounts requested on a node": (lambda s: s.state.nodes._requested.set("cpu", _row(s), 1), "n1"),
    "amounts a node offers": (lambda s: s.state.nodes._allocatable.set("cpu", _row(s), 1), "n1"),
    "amounts with defaults": (lambda s: s.state.nodes._nonzero.set("cpu", _row(s), 1), "n1"),
    "a node takes no Pods": (lambda s: s.state.nodes.unschedulable.__setitem__(_row(s), True), "n1"),
    "Pods allowed on a node": (lambda s: s.state.nodes.allowed_pods.__setitem__(_row(s), 1), "n1"),
    "a Pod's place": (lambda s: s.state.placements.pop("uid-default-bound"), "default/bound"),
    "Pods by topology": (lambda s: s.state.topology._placed.popitem(), "topology counts"),
    "Pods by class and row": (_topology_class, "topology counts"),
    "attached volumes": (_attached, ""),
    "members of a PodGroup": (lambda s: s.state.pod_groups._members.clear(), "PodGroups"),
    "nominated nodes": (lambda s: s.state.nominator._node_of.update(nobody="n1"), ""),
    "holders of devices": (_holding, "ledger"),
    "an entry of the ledger": (lambda s: s.state.devices.ledger._entries.clear(), "default/held|ledger"),
    "the use of a node's devices": (_usage, "usage of node"),
    "a node's view of devices": (lambda s: s.state.devices.slices._of_node.popitem(), ""),
    "a filter's answer": (_filter_answer, "kept for node n1 is stale"),
    "a raw score": (_raw_score, "kept for node n1 is stale"),
    "a sum of scores": (_sum_of_scores, "n1"),
}
"""The queue's own structures are spoilt in tests/queue."""


async def _world_after_decisions(world: World) -> Service:
    """Every class of Pods was decided, nothing is spoilt."""
    await world.decide()
    world.service.loop.check()
    await world.decide()
    return world.service


@pytest.mark.parametrize("what", SPOILT)
async def test_what_is_spoilt_is_told(what: str) -> None:
    """InternalError says where the kept number differs; before, the check passes."""
    spoil, text = SPOILT[what]
    async with World(ALL_GATES) as world:
        service = await _world_after_decisions(world)
        spoil(service)
        with pytest.raises(InternalError, match=text or None) as told:
            service.loop.check()
    assert len(str(told.value)) > 20


def _spoil_memo(bench: Bench) -> None:
    """A selector that said yes about a device said no."""
    for compiled in bench.profile.plugins["DynamicResources"]._searches._selectors._compiled.values():
        for key, answer in compiled._answers.items():
            compiled._answers[key] = not answer


def _spoil_kept_search(bench: Bench) -> None:
    """A node that was found to fit did not."""
    (answers,) = bench.profile.plugins["DynamicResources"]._searches._answers.all()
    answers.verdicts[3] += 1


@pytest.mark.parametrize(("spoil", "text"), [(_spoil_memo, "remembered"), (_spoil_kept_search, "kept for node")])
def test_spoilt_answers_about_devices_are_told(spoil: Callable[[Bench], None], text: str) -> None:
    """What a selector said of a device, and what the search said of a node."""
    bench = Bench(WORKLOADS["device-cel"], 6)
    for index in range(3):
        bench.place(bench.pod(index))
    bench.profile.plugins["DynamicResources"].verify_caches()
    spoil(bench)
    with pytest.raises(InternalError, match=text):
        bench.profile.plugins["DynamicResources"].verify_caches()
