"""Coverage-guided fuzzing of what parses text: ``python -m e2e.fuzz.targets quantity -runs=100000 -seed=1``.

atheris (libFuzzer underneath) mutates inputs towards code that was not reached yet. It measures branches in Python at
50,000 inputs a second, bounds time and memory of each input, and repeats a run by its seed; a tracer of our own on
sys.settrace would be a hundred times slower. A fault is an exception that the target does not foresee, an input
that takes longer than ``-timeout`` seconds, or more memory than ``-rss_limit_mb``; libFuzzer then prints the input and
exits with another code than 0.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]  # no types; wheels for Linux on x86-64 only

MEASURED = {
    "quantity": "scheduler.api.quantity",
    "label-selector": "scheduler.api.selectors",
    "node-selector": "scheduler.api.selectors",
    "cel": "scheduler.cel.selector",
    "config": "scheduler.config.load",
    "deep": "scheduler.api.deep",
}
"""Whose branches each target measures, with all that this imports; the rest comes later and is left as it is."""
_NAME = sys.argv[1] if len(sys.argv) > 1 else ""
if _NAME in MEASURED:
    with atheris.instrument_imports(include=["scheduler"]):
        importlib.import_module(MEASURED[_NAME])

# ruff: noqa: E402 (these may only be imported now)
import msgspec

from scheduler.api.deep import Shallow, decode_deep
from scheduler.api.quantity import QuantityError, parse_quantity
from scheduler.api.selectors import (
    LabelSelector,
    NodeSelector,
    SelectorError,
    check_node_selector,
    label_selector_matches,
    node_selector_matches,
)
from scheduler.cel import CelDevice, CompileError, EvaluationError, compile_derived, compile_selector
from scheduler.config import load_config
from scheduler.errors import ConfigError

LABELS = {"app": "a", "size": "7", "": "", "big": "9223372036854775807"}
_LABEL_SELECTOR = msgspec.json.Decoder(LabelSelector)
_NODE_SELECTOR = msgspec.json.Decoder(NodeSelector)
_DEVICE = CelDevice(
    "gpu.example.com",
    {"model": ("string", "m"), "n": ("int", 3), "v": ("version", "1.2.3"), "ok": ("bool", True)},
    {"memory": parse_quantity("80Gi")},
)


def quantity(data: bytes) -> None:
    """Parse; whatever parses can be printed, compared, added, hashed and rounded."""
    half = len(data) // 2
    texts = [part.decode("utf-8", "surrogateescape") for part in (data, data[:half], data[half:])]
    amounts = []
    for text in texts:
        try:
            amounts.append(parse_quantity(text))
        except QuantityError:
            continue
    for amount in amounts:
        # Upstream prints amounts beyond its suffixes without one.
        readable = len(str(amount)) <= 4000 and -9 <= amount._normal()[1] <= 18
        again = parse_quantity(str(amount)) if readable else amount
        if again != amount:
            raise AssertionError(f"{amount!r} is printed as {amount} and read as {again!r}")
        if hash(amount) != hash(again):
            raise AssertionError(f"two hashes of {amount}")
        amount.value(), amount.milli_value(), amount.exact_int64(), amount.approximate_float()
        for other in amounts:
            total = amount + other
            if (total - other != amount) and not total.big and abs(amount.power - other.power) < 100:
                raise AssertionError(f"{amount} + {other} - {other} = {total - other}")
            if (amount < other) is (amount >= other):
                raise AssertionError(f"{amount} and {other} are in no order")


def label_selector(data: bytes) -> None:
    """Decode as the API's JSON and match."""
    try:
        selector = decode_deep(_LABEL_SELECTOR, data)
    except msgspec.DecodeError:
        return
    label_selector_matches(selector, LABELS)
    label_selector_matches(selector, {})


def node_selector(data: bytes) -> None:
    """Decode, check and match; a selector that is refused matches no node by its refused term."""
    try:
        selector = decode_deep(_NODE_SELECTOR, data)
    except msgspec.DecodeError:
        return
    try:
        check_node_selector(selector)
    except SelectorError:
        terms = tuple(term for term in selector.nodeSelectorTerms if _refused(NodeSelector((term,))))
        if node_selector_matches(NodeSelector(terms), "n1", LABELS):
            raise AssertionError(f"a refused term matches: {selector}") from None
    node_selector_matches(selector, "n1", LABELS)


def _refused(selector: NodeSelector) -> bool:
    try:
        check_node_selector(selector)
    except SelectorError:
        return True
    return False


def cel(data: bytes) -> None:
    """Compile as a selector and as a derived attribute, evaluate on a device, within the cost limit."""
    text = data.decode("utf-8", "surrogateescape")
    for compiled in (compile_selector, compile_derived):
        try:
            program = compiled(text)
        except CompileError as error:
            _words(str(error))
            continue
        try:
            program.evaluate(_DEVICE)
        except EvaluationError as error:
            _words(str(error))
            if "internal error" in str(error):
                raise AssertionError(f"not foreseen: {error}") from error
        program.reads.key(_DEVICE)


def config(data: bytes) -> None:
    """Load as a KubeSchedulerConfiguration."""
    try:
        load_config(data.decode("utf-8", "surrogateescape"))
    except ConfigError as error:
        _words(str(error))


def deep(data: bytes) -> None:
    """Take deep parts out and put them back."""
    shallow = Shallow(data)
    if shallow.whole(shallow.text) != data:
        raise AssertionError("another text")


def _words(message: str) -> None:
    """A message has words and can be sent."""
    if not message.strip():
        raise AssertionError("an error without words")
    message.encode("utf-8", "surrogateescape")


TARGETS: dict[str, Callable[[bytes], None]] = {
    one.__name__.replace("_", "-"): one for one in (quantity, label_selector, node_selector, cel, config, deep)
}


def main() -> None:
    """libFuzzer takes over and ends the process."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        raise SystemExit(f"usage: python -m e2e.fuzz.targets {{{','.join(TARGETS)}}} [libFuzzer's flags]")
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
