"""Each protection against hostile input: what shows that it is there, and how it is taken out.

``probe`` passes with the protection and fails without: tests/hostile/test_protections.py asserts both, so a probe that
could not fail is noticed.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import msgspec
import pytest

from e2e.fuzz.mutate import Mutant
from e2e.fuzz.samples import cluster
from e2e.fuzz.world import HangError, World, cpu_budget
from scheduler.api import deep, kinds, quantity, selectors
from scheduler.api.deep import decode_deep
from scheduler.api.kinds import RESOURCE_CLAIM, decode
from scheduler.api.quantity import QuantityError, parse_quantity
from scheduler.api.selectors import Requirement, requirement_matches
from scheduler.cel import (
    CelDevice,
    CompileError,
    EvaluationError,
    build,
    calls,
    formatting,
    grammar,
    lib_lists,
    lib_regex,
    loops,
    validate,
)
from scheduler.cel import pattern as cel_pattern
from scheduler.cel import selector as cel_selector
from scheduler.cel import work as cel_work
from scheduler.cel.selector import Selector
from scheduler.config import document, load_config
from scheduler.dra import admissions
from scheduler.dra import selectors as device_selectors
from scheduler.edge import lines, lister, reflector, watch_events
from scheduler.edge.bad_objects import BadObject, BadObjects
from scheduler.errors import ConfigError
from scheduler.explain import fit
from scheduler.state import labels as label_columns
from scheduler.state.nodes import NodeTable

NO_LIMIT = 1 << 62
KEPT = 20
DEVICE = CelDevice("gpu.example.com", {"model": ("string", "m" * 100)}, {})
PATTERN_BUDGET_S = 1.0
"""CPU for one pattern that RE2 has done with in microseconds."""
HALVES = b'{"a":"x\\ud800"}'
DEEP = b"[" * 3000 + b"]" * 3000


@dataclass(frozen=True)
class Protection:
    """``name`` for people; ``probe`` raises when the protection is missing; ``take_out`` removes it for one test."""

    name: str
    probe: Callable[[], None]
    take_out: Callable[[pytest.MonkeyPatch], None]


def _without(module: object, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Takes out a limit that is a number."""
    return lambda patch: patch.setattr(module, name, NO_LIMIT)


def _no_cost_limit(patch: pytest.MonkeyPatch) -> None:
    for module in (calls, loops, cel_selector):
        patch.setattr(module, "LIMIT", NO_LIMIT)


def _refused(expression: str, text: str) -> Callable[[], None]:
    def probe() -> None:
        with pytest.raises(CompileError, match=text):
            Selector(expression)

    return probe


def _stopped(expression: str, kind: str, text: str) -> Callable[[], None]:
    def probe() -> None:
        with pytest.raises(EvaluationError, match=text) as stopped:
            Selector(expression).evaluate(DEVICE)
        assert stopped.value.kind == kind

    return probe


def _deep_object() -> None:
    config = b'{"opaque":{"driver":"d","parameters":' + DEEP + b"}}"
    claim = decode(RESOURCE_CLAIM, b'{"metadata":{"name":"c"},"spec":{"devices":{"config":[' + config + b"]}}}")
    assert bytes(claim.spec.devices.config[0].opaque.parameters) == DEEP


def _deep_object_with_nulls() -> None:
    config = b'{"opaque":{"driver":"d","parameters":' + DEEP + b"}}"
    nulls = b'{"metadata":{"name":"c","labels":null},"spec":{"devices":{"requests":null,"config":[' + config + b"]}}}"
    assert bytes(decode(RESOURCE_CLAIM, nulls).spec.devices.config[0].opaque.parameters) == DEEP


def _list_with_halves() -> None:
    page = b'{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"c"},"a":' + HALVES + b"}]}"
    assert decode_deep(lister._PAGE, page).items


class _WithHalves:
    """In place of Halves: they stay."""

    def __init__(self, raw: bytes) -> None:
        self.text = raw

    def whole(self, part: bytes) -> bytes:
        return part


def _halves_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deep, "Halves", _WithHalves)


def _not_cut(raw: bytes) -> None:
    raise RecursionError


def _met(change: Callable[[bytes], bytes]) -> Callable[[], None]:
    """The claim that nobody holds, changed, meets a whole service."""

    async def meet() -> list[str]:
        kind, body = next((kind, body) for kind, body in cluster() if body["metadata"]["name"] == "wanted")
        async with World() as world:
            mutant = Mutant("by hand", change(world.encoded(kind, body)))
            return await world.meet(kind, body, mutant)

    def probe() -> None:
        faults = asyncio.run(meet())
        assert not faults, faults

    return probe


def _deep_parameters(raw: bytes) -> bytes:
    return raw.replace(b'{"a": 1}', DEEP).replace(b'{"a":1}', DEEP)


def _wrong_type(raw: bytes) -> bytes:
    return raw.replace(b'"devices":{', b'"devices":{"requests":7,"x":{', 1).replace(b'"config"', b'"y":1},"config"', 1)


def _with_revision(revision: str) -> Callable[[bytes], bytes]:
    def change(raw: bytes) -> bytes:
        body = msgspec.json.decode(raw)
        return msgspec.json.encode({**body, "metadata": {**body["metadata"], "resourceVersion": revision}})

    return change


def _every_digit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admissions, "revision_of", lambda claim: int(claim.metadata.resourceVersion))


def _told_each_time(patch: pytest.MonkeyPatch) -> None:
    def report(self: BadObjects, key: str, uid: str, error: kinds.DecodeError, kept: bool) -> None:
        self._tell(BadObject(self._kind, key, str(error), kept))

    patch.setattr(BadObjects, "report", report)


def _plain_decode(patch: pytest.MonkeyPatch) -> None:
    for module in (kinds, watch_events):
        patch.setattr(module, "decode_deep", lambda decoder, raw: decoder.decode(raw))


def _long_quantity() -> None:
    with pytest.raises(QuantityError):
        parse_quantity("9" * 5000)


def _far_exponents() -> None:
    total = parse_quantity("1e30000") + parse_quantity("1")
    assert total.mantissa < 10**4200


def _long_number() -> None:
    assert not requirement_matches(Requirement("a", "Gt", ("9" * 5000,)), {"a": "1"})


def _long_line() -> None:
    splitter, megabyte = lines.LineSplitter(), b"x" * (1024 * 1024)
    for _ in range(64):
        splitter.feed(megabyte)
    with pytest.raises(lines.LineTooLongError):
        splitter.feed(megabyte)


def _duplicate_keys() -> None:
    with pytest.raises(ConfigError, match="duplicate"):
        load_config("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nkind: Other\n")


def _catastrophic_pattern() -> None:
    """Backtracking tries each of 2^27 ways to cut the text up, and would not be done within the budget."""
    expression = f"'{'a' * 28}'.matches('(a+)+b')"
    try:
        with cpu_budget(PATTERN_BUDGET_S):
            assert Selector(expression).evaluate(DEVICE) is False
    except HangError as error:
        raise AssertionError(f"{expression}: {error}") from None


def _backtracking(patch: pytest.MonkeyPatch) -> None:
    """Python's own engine for RE2. Nothing is kept of it: the function is put there without its cache."""
    own = SimpleNamespace(Options=SimpleNamespace, error=re.error, compile=lambda text, options: re.compile(text))
    compiled = cel_pattern.compile_pattern.__wrapped__
    patch.setattr(cel_pattern, "re2", own)
    for module in (cel_pattern, calls, lib_regex, validate):
        patch.setattr(module, "compile_pattern", compiled)


def _kept_expressions() -> None:
    cache = device_selectors.SelectorCache(KEPT)
    for number in range(KEPT + 10):
        cache.compile(f"device.driver == '{number}'")
    assert len(cache._compiled) == KEPT


def _keeps_all(patch: pytest.MonkeyPatch) -> None:
    class Kept(OrderedDict[str, device_selectors.CompiledSelector]):
        def popitem(self, last: bool = True) -> tuple[str, device_selectors.CompiledSelector]:
            return next(iter(self.items()))

    patch.setattr(device_selectors, "OrderedDict", Kept)


def _long_note() -> None:
    assert len(fit.event_note("é" * 1_000_000).encode()) <= 1024


def _label_columns() -> None:
    table = NodeTable()
    for number in range(300):
        table.labels(f"key-{number}")
    assert len(table._labels._columns) == 256


PROTECTIONS = (
    Protection("depth of JSON: a claim's parameters", _deep_object, _plain_decode),
    Protection(
        "depth of JSON: beside fields that are null",
        _deep_object_with_nulls,
        lambda patch: patch.setattr(deep, "Shallow", _not_cut),
    ),
    Protection("depth of JSON: the watch goes on", _met(_deep_parameters), _plain_decode),
    Protection("halves of characters: a list", _list_with_halves, _halves_stay),
    Protection("an undecodable object is named once", _met(_wrong_type), _told_each_time),
    Protection(
        "a resourceVersion that is no number",
        _met(_with_revision("²")),
        lambda patch: patch.setattr(reflector, "revision_of", int),
    ),
    Protection("the guard: digits of a resourceVersion", _met(_with_revision("9" * 5000)), _every_digit),
    Protection("length of quantities", _long_quantity, _without(quantity, "_MAX_TEXT")),
    Protection("exponents of quantities", _far_exponents, _without(quantity, "_MAX_EXPANDED_POWER")),
    Protection("length of numbers in selectors", _long_number, _without(selectors, "_INT64_DIGITS")),
    Protection("length of a watch line", _long_line, _without(lines, "LINE_BYTES_MAX")),
    Protection(
        "CEL: length of a text",
        _refused("true" + " " * 10_300, "10"),
        _without(grammar, "MAX_TEXT_BYTES"),
    ),
    Protection(
        "CEL: nesting",
        _refused("(" * 300 + "true" + ")" * 300, "recursion limit exceeded: 250"),
        _without(build, "MAX_NESTING"),
    ),
    Protection(
        "CEL: cost",
        _stopped("lists.range(260000).all(x, true)", "cost", "cost"),
        _no_cost_limit,
    ),
    Protection(
        "CEL: length of a result",
        _stopped(f"cel.bind(a, '{'x' * 2000}', a.replace('x', a)).size() > 0", "cost", "cost"),
        _without(cel_work, "MAX_RESULT"),
    ),
    Protection(
        "CEL: length of a range",
        _stopped("lists.range(1000001).size() > 0", "runtime", "exceeds maximum"),
        _without(lib_lists, "_MAX_RANGE"),
    ),
    Protection(
        "CEL: digits of a formatted number",
        _stopped("'%.200000f'.format([1.0]).size() > 0", "cost", "cost"),
        _without(formatting, "_MAX_PRECISION"),
    ),
    Protection("CEL: time of a regular expression", _catastrophic_pattern, _backtracking),
    Protection(
        "CEL: expressions kept",
        _kept_expressions,
        _keeps_all,
    ),
    Protection("label keys kept as columns", _label_columns, _without(label_columns, "_MAX_KEYS")),
    Protection("length of an event's note", _long_note, lambda patch: patch.setattr(fit, "event_note", str)),
    Protection(
        "configuration: a key twice",
        _duplicate_keys,
        lambda patch: patch.setattr(document, "_check_keys", lambda *_: None),
    ),
)
