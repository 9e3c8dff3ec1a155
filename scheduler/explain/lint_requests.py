"""Lint of what claims, templates and classes ask of devices, against the slices that are there."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches

from scheduler.api.quantity import Quantity
from scheduler.api.resource import RESULTS_MAX, DeviceClass, ResourceClaim
from scheduler.dra.amounts import nano
from scheduler.dra.devices import DeviceInfo
from scheduler.dra.requests import Alternative, prepare
from scheduler.dra.selectors import Program, SelectorFailure
from scheduler.explain.findings import Finding
from scheduler.explain.inventory import ANYWHERE, where
from scheduler.explain.lint_constraints import lint_constraints, lint_request_names
from scheduler.explain.lint_subject import Subject, World
from scheduler.explain.lint_together import lint_together
from scheduler.explain.text import counted
from scheduler.explain.trees import ABSENT, near_miss, read_values

# What keeps one alternative of a request from being taken, and nothing else.
_OF_ONE_ALTERNATIVE = ("request-matches-nothing", "count-too-large", "capacity-unknown", "capacity-too-large")
# A quantity this much larger or smaller than every device's is taken for one in another unit.
_UNIT_FACTOR = 1000


def lint_class(given: DeviceClass, world: World) -> Iterator[Finding]:
    """One class: do its selectors compile, match anything, fail anywhere?"""
    subject = Subject(f"DeviceClass {given.name}", "spec")
    expressions = tuple(one.cel.expression if one.cel is not None else "" for one in given.spec.selectors)
    program = Program(given.name, expressions, (), world.cache)

    def path(place: int) -> str:
        return f"spec.selectors[{place}].cel.expression"

    matched = yield from _answers(program, world.devices, subject, path)
    if not matched and world.devices and expressions and _compiles(program, world):
        yield Finding(
            "warning",
            "class-matches-nothing",
            subject.name,
            "spec.selectors",
            f"none of the {len(world.devices)} published devices is of this class"
            if len(world.devices) > 1
            else "the only published device is not of this class",
            "every Pod that asks for it waits",
            "compare its selectors with the drivers and attributes in kubectl get resourceslices -o yaml",
        )


def lint_claim(subject: Subject, claim: ResourceClaim, world: World) -> Iterator[Finding]:
    """One claim, or the claim that a template makes: part by part, then, where no part is at fault, as a whole."""
    plan = prepare([claim], world.state.devices.classes, world.state.features, world.cache)
    found = [*_classes(subject, claim, world)]
    for alternative in plan.alternatives:
        found += _alternative(subject, claim, alternative, world)
    found += lint_request_names(subject, claim)
    found += lint_constraints(subject, claim, plan, world)
    errors = [finding for finding in found if finding.severity == "error"]
    if not errors and world.devices:
        found += lint_together(subject.name, subject.prefix, claim, world.trial)
    elif errors and all(_passed_over(finding) for finding in errors) and world.trial.served(claim):
        # The claim gets its devices by another entry of firstAvailable.
        found = [replace(finding, severity="note") if finding in errors else finding for finding in found]
    yield from found


def _passed_over(finding: Finding) -> bool:
    return ".firstAvailable[" in finding.path and finding.check in _OF_ONE_ALTERNATIVE


def _paths(claim: ResourceClaim, subject: Subject, alternative: Alternative) -> str:
    """The field that holds the alternative."""
    number = next(n for n, request in enumerate(claim.spec.devices.requests) if request.name == alternative.request)
    base = f"{subject.prefix}.requests[{number}]"
    request = claim.spec.devices.requests[number]
    return f"{base}.firstAvailable[{alternative.place}]" if request.firstAvailable else f"{base}.exactly"


def _classes(subject: Subject, claim: ResourceClaim, world: World) -> Iterator[Finding]:
    classes = world.state.devices.classes
    for number, request in enumerate(claim.spec.devices.requests):
        asked = [("exactly", request.exactly.deviceClassName)] if request.exactly is not None else []
        asked += [(f"firstAvailable[{n}]", sub.deviceClassName) for n, sub in enumerate(request.firstAvailable)]
        for part, name in asked:
            if classes.get(name) is not None:
                continue
            near = get_close_matches(name, classes.names(), 1, 0.6)
            yield Finding(
                "error",
                "class-missing",
                subject.name,
                f"{subject.prefix}.requests[{number}].{part}.deviceClassName",
                f"there is no DeviceClass {name}",
                "Pods that use it wait until the class exists",
                f"use {near[0]}" if near else "create the class, or name one of kubectl get deviceclasses",
            )


def _alternative(subject: Subject, claim: ResourceClaim, alternative: Alternative, world: World) -> Iterator[Finding]:
    program = alternative.program
    if program is None:
        return
    base = _paths(claim, subject, alternative)

    def path(place: int) -> str:
        of_class = place < program.class_count
        number = place if of_class else place - program.class_count
        where_ = f"DeviceClass {program.class_name} spec" if of_class else base
        return f"{where_}.selectors[{number}].cel.expression"

    matched = yield from _answers(program, world.devices, subject, path, skip_class=True)
    if not world.devices or not _compiles(program, world):
        return
    if not matched:
        yield _matches_nothing(subject, base, program, world)
        return
    yield from _count(subject, base, alternative, matched)
    for name, amount in alternative.capacity.items():
        yield from _capacity(subject, base, name, amount, matched)


def _answers(
    program: Program,
    devices: Sequence[DeviceInfo],
    subject: Subject,
    path: Callable[[int], str],
    skip_class: bool = False,
) -> Generator[Finding, None, list[DeviceInfo]]:
    """Findings about failing selectors; answers with the devices that match (by ``yield from``)."""
    matched: list[DeviceInfo] = []
    failures: dict[int, list[tuple[DeviceInfo, SelectorFailure]]] = {}
    for info in devices:
        answer = program.answer(info)
        if isinstance(answer, SelectorFailure):
            failures.setdefault(answer.place, []).append((info, answer))
        elif answer:
            matched.append(info)
    for place, failed in failures.items():
        if not (skip_class and place < program.class_count):
            yield _failing(program, place, failed, len(devices), subject, path(place))
    return matched


def _failing(
    program: Program,
    place: int,
    failed: Sequence[tuple[DeviceInfo, SelectorFailure]],
    total: int,
    subject: Subject,
    path: str,
) -> Finding:
    info, failure = failed[0]
    if failure.compiling:
        return Finding(
            "error",
            "selector-does-not-compile",
            subject.name,
            path,
            " ".join(failure.message.split()),
            "the attempt of every Pod that uses it ends with an error",
            "mend the expression",
        )
    guard = program.guard(failure, info)
    return Finding(
        "error",
        "selector-fails",
        subject.name,
        path,
        f"fails on {len(failed)} of {counted(total, 'device')}, for example {info.key}: {failure.message}",
        "one failing device ends the whole attempt of the Pod, even where other nodes have devices that match",
        f"guard it: {guard} && ({program.expressions[place]})" if guard else "test for the attribute before reading it",
    )


def _compiles(program: Program, world: World) -> bool:
    return not any(world.cache.compile(expression).compile_error for expression in program.expressions)


def _matches_nothing(subject: Subject, base: str, program: Program, world: World) -> Finding:
    """Which selector leaves nothing, and what it reads that nobody publishes."""
    left = list(world.devices)
    place = 0
    for number, expression in enumerate(program.expressions):
        compiled = world.cache.compile(expression)
        kept = [info for info in left if compiled.answer(info) is True]
        if not kept:
            place = number
            break
        left = kept
    of_class = place < program.class_count
    number = place if of_class else place - program.class_count
    expression = program.expressions[place] if program.expressions else ""
    path = f"{base}.deviceClassName" if of_class else f"{base}.selectors[{number}].cel.expression"
    what = f"class {program.class_name}" if of_class else expression
    return Finding(
        "error",
        "request-matches-nothing",
        subject.name,
        path,
        f"no published device matches: {what} leaves none of {len(left)}",
        "Pods that use it wait",
        "; ".join(hints_for(expression, left)) or "compare with kubectl get resourceslices -o yaml",
    )


def hints_for(expression: str, devices: Sequence[DeviceInfo]) -> Iterator[str]:
    """What an expression reads: values that are there, or names that look like the one nobody publishes."""
    seen: dict[str, dict[str, int]] = {}
    for info in devices[:1000]:
        for name, value in read_values(f"request: {expression}", info).items():
            seen.setdefault(name, {})[value] = seen.setdefault(name, {}).get(value, 0) + 1
    for name, values in seen.items():
        present = [value for value in values if not value.startswith(ABSENT)]
        if present:
            yield f"{name} is {', '.join(present[:5])}{', …' if len(present) > 5 else ''}"
        else:
            yield f"no device has {name}{next(iter(values)).removeprefix(ABSENT)}"


def _count(subject: Subject, base: str, alternative: Alternative, matched: Sequence[DeviceInfo]) -> Iterator[Finding]:
    if alternative.take_all:
        return
    by_node: dict[str, int] = {}
    for info in matched:
        by_node[where(info)] = by_node.get(where(info), 0) + 1
    anywhere = by_node.pop(ANYWHERE, 0)
    most = max(by_node.values(), default=0) + anywhere
    shared = any(info.multi for info in matched)
    if alternative.count > RESULTS_MAX or (alternative.count > most and not shared):
        limit = min(most, RESULTS_MAX) if not shared else RESULTS_MAX
        yield Finding(
            "error",
            "count-too-large",
            subject.name,
            f"{base}.count",
            f"asks for {counted(alternative.count, 'device')}; a node has {most} that match at most"
            + (f", a claim may have {RESULTS_MAX}" if alternative.count > RESULTS_MAX else ""),
            "all devices of a claim come from one node, so Pods that use it wait for ever",
            f"ask for {limit} at most",
        )


def _capacity(
    subject: Subject, base: str, name: str, asked: Quantity, matched: Sequence[DeviceInfo]
) -> Iterator[Finding]:
    path = f"{base}.capacity.requests[{name}]"
    values = [info.capacities[name] for info in matched if name in info.capacities]
    if not values:
        known = {other: None for info in matched for other in info.capacities}
        yield Finding(
            "error",
            "capacity-unknown",
            subject.name,
            path,
            f"no device that matches has capacity {name}{near_miss(name, known)}",
            "a device without the capacity is never taken",
            f"use one of {', '.join(known)}" if known else "ask for no capacity: these devices have none",
        )
        return
    largest = max(values, key=lambda capacity: capacity.nano)
    amount = nano(asked)
    too_large, too_small = amount > largest.nano, amount and largest.nano // amount >= _UNIT_FACTOR**2
    if not too_large and not too_small:
        return
    unit = too_small or amount // max(largest.nano, 1) >= _UNIT_FACTOR
    yield Finding(
        "error" if too_large else "warning",
        "capacity-unit" if unit else "capacity-too-large",
        subject.name,
        path,
        f"asks for {asked}, the largest device has {largest.value}" + (": probably another unit" if unit else ""),
        "no device can give that much" if too_large else "a share this small is hardly what was meant",
        f"write it in the unit of {largest.value}" if unit else f"ask for {largest.value} at most",
    )
