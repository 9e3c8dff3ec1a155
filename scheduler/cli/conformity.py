"""``dra-scheduler conformity``: answer cases in the oracle's format, one JSON object per line in and out.

docs/conformity.md describes the format and lists where our answers differ from upstream's on purpose.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from scheduler.api.core import Node
from scheduler.api.kinds import without_nulls
from scheduler.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from scheduler.cli.case_lines import answer_lines
from scheduler.cli.conformity_cel import CaseError, run_cel
from scheduler.cli.conformity_schedule import run_schedule
from scheduler.dra.allocator import Allocated, Fatal, NodeError, Timeout, allocate
from scheduler.dra.classes import ClassStore
from scheduler.dra.features import Features
from scheduler.dra.ledger import Ledger
from scheduler.dra.requests import prepare
from scheduler.dra.selectors import SelectorCache
from scheduler.dra.slices import SliceStore

SHARE_ID = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
TIMEOUT_S = 10.0

_FEATURES = {
    "AdminAccess": "admin_access",
    "PrioritizedList": "prioritized_list",
    "PartitionableDevices": "partitionable_devices",
    "DeviceTaints": "device_taints",
    "DeviceBindingAndStatus": "binding_conditions",
    "ConsumableCapacity": "consumable_capacity",
    "FractionalCapacityRange": "fractional_capacity",
    "ListTypeAttributes": "list_attributes",
    "OptionalNodeOperations": "optional_node_operations",
    "DerivedAttributes": "derived_attributes",
    "CompatibilityGroups": "compatibility_groups",
}


class AllocateCase(msgspec.Struct, forbid_unknown_fields=True):
    """One case of ``conformity allocate``. ``meta``, ``expected``, ``answer`` and ``channel`` are not ours to read."""

    name: str = ""
    features: dict[str, bool] | None = None
    node: Node | None = None
    classes: tuple[DeviceClass, ...] | None = ()
    slices: tuple[ResourceSlice, ...] | None = ()
    taintRules: tuple[DeviceTaintRule, ...] | None = ()
    claims: tuple[ResourceClaim, ...] | None = ()
    allocated: tuple[ResourceClaim, ...] | None = ()
    channel: str = ""
    expected: Any = None
    meta: Any = None
    answer: Any = None


_DECODER = msgspec.json.Decoder(AllocateCase)


def features_of(given: dict[str, bool] | None) -> Features:
    """The features of a case: the default ones, or exactly those that are true. Raises CaseError on unknown names."""
    if given is None:
        return Features()
    named = dict(given)
    start = named.pop("default", False)
    rules = named.pop("DeviceTaintRules", True)
    unknown = sorted(set(named) - set(_FEATURES))
    if unknown:
        raise CaseError(f"features: unknown field {unknown[0]!r}")
    fields: dict[str, Any] = {field: named.get(name, False) for name, field in _FEATURES.items()}
    if start:
        defaults = Features()
        fields = {field: named.get(name, getattr(defaults, field)) for name, field in _FEATURES.items()}
    return Features(**fields, device_taint_rules=rules)


def answer_allocate(case: AllocateCase, clock: Callable[[], float] = time.monotonic) -> dict[str, Any]:
    """Our answer to one case. Raises CaseError when the case itself cannot be used."""
    if case.node is None:
        raise CaseError("no node")
    features = features_of(case.features)
    started_s = clock()
    slices = SliceStore(features)
    for rule in case.taintRules or ():
        slices.apply_rule(None, rule)
    for number, slice_ in enumerate(case.slices or ()):
        slices.apply(None, _named(slice_, number, slices))
    classes = ClassStore()
    for device_class in case.classes or ():
        classes.apply(None, device_class)
    ledger = Ledger(features.consumable_capacity)
    for number, claim in enumerate(case.allocated or ()):
        ledger.set_claim(_identified(claim, f"allocated-{number}"))
    view = slices.view(case.node)
    plan = prepare(case.claims or (), classes, features, SelectorCache())
    outcome, results = allocate(
        plan,
        view,
        ledger.usage(view),
        features,
        lambda: SHARE_ID,
        interrupted=lambda: clock() - started_s > TIMEOUT_S,
    )
    answer: dict[str, Any] = {"name": case.name, "allocated": isinstance(outcome, Allocated)}
    if results:
        answer["results"] = results
    if isinstance(outcome, Fatal):
        answer |= {"error": outcome.text, "error_kind": "fatal"}
    elif isinstance(outcome, NodeError):
        answer |= {"error": outcome.text, "error_kind": "node"}
    elif isinstance(outcome, Timeout):
        answer |= {"error": "context deadline exceeded", "error_kind": "timeout"}
    answer["elapsed_ms"] = round((clock() - started_s) * 1000, 3)
    return answer


def _named(slice_: ResourceSlice, number: int, slices: SliceStore) -> ResourceSlice:
    """A slice with a name of its own: a missing or repeated one is made up so that it sorts in the given place."""
    name = slice_.metadata.name or f"slice-{number}"
    if slices.get(name) is not None:
        name = f"{name}#{number}"
    if name == slice_.metadata.name:
        return slice_
    return msgspec.structs.replace(slice_, metadata=msgspec.structs.replace(slice_.metadata, name=name))


def _identified(claim: ResourceClaim, name: str) -> ResourceClaim:
    """A claim without uid gets one from its place, so that two such claims stay two."""
    if claim.uid:
        return claim
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, uid=name))


def run_allocate(lines: Iterable[str | bytes]) -> Iterator[bytes]:
    """One answer line per case line, in order. A case that cannot be read answers ``input_error``."""
    return answer_lines(lines, lambda raw: answer_allocate(_decode(raw)), (msgspec.DecodeError, CaseError))


def _decode(raw: bytes) -> AllocateCase:
    """One case; null means absent."""
    try:
        return _DECODER.decode(raw)
    except msgspec.ValidationError:
        return _DECODER.decode(msgspec.json.encode(without_nulls(msgspec.json.decode(raw))))


COMMANDS: dict[str, Callable[[Iterable[str | bytes]], Iterator[bytes]]] = {
    "allocate": run_allocate,
    "cel": run_cel,
    "schedule": run_schedule,
}


def main(kind: str) -> int:
    """Answer standard input on standard output. Exit code 0 unless the input cannot be read at all."""
    try:
        for answer in COMMANDS[kind](sys.stdin.buffer):
            sys.stdout.buffer.write(answer + b"\n")
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader has gone; leave quietly and keep the interpreter from flushing into a closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The kind of case."""
    parser.add_argument("kind", choices=sorted(COMMANDS), help="what the cases are about")


def execute(arguments: argparse.Namespace) -> int:
    """Answer until the input ends."""
    return main(arguments.kind)
