"""Lint of a claim's constraints, against the attributes that are published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from scheduler.api.resource import ResourceClaim
from scheduler.dra.requests import Alternative, Plan
from scheduler.explain.findings import Finding
from scheduler.explain.inventory import ANYWHERE, where
from scheduler.explain.lint_subject import Subject, World
from scheduler.explain.text import counted
from scheduler.explain.trees import near_miss


def lint_request_names(subject: Subject, claim: ResourceClaim) -> Iterator[Finding]:
    """Constraints of requests that the claim does not have; an API server would refuse it."""
    known = [request.name for request in claim.spec.devices.requests]
    known += [f"{request.name}/{sub.name}" for request in claim.spec.devices.requests for sub in request.firstAvailable]
    for number, constraint in enumerate(claim.spec.devices.constraints):
        for place, name in enumerate(constraint.requests):
            if name not in known:
                near = get_close_matches(name, known, 1)
                yield Finding(
                    "error",
                    "constraint-request-unknown",
                    subject.name,
                    f"{subject.prefix}.constraints[{number}].requests[{place}]",
                    f"the claim has no request {name}",
                    "the API server refuses the object",
                    f"use {near[0]}" if near else f"use one of {', '.join(known)}",
                )


def lint_constraints(subject: Subject, claim: ResourceClaim, plan: Plan, world: World) -> Iterator[Finding]:
    """Attributes that nobody publishes, that some devices lack, or that too few devices share, request by request."""
    if not world.devices:
        return
    for number, constraint in enumerate(claim.spec.devices.constraints):
        attribute = constraint.matchAttribute or constraint.distinctAttribute
        if attribute is None:
            continue
        kind = "matchAttribute" if constraint.matchAttribute is not None else "distinctAttribute"
        path = f"{subject.prefix}.constraints[{number}].{kind}"
        if any(attribute in alternative.derived for alternative in plan.alternatives):
            continue
        having = [info for info in world.devices if info.attribute(attribute) is not None]
        if not having:
            known: Mapping[str, None] = {
                name if "/" in name else f"{info.key.driver}/{name}": None
                for info in world.devices
                for name in info.attributes
            }
            near = near_miss(attribute, known)
            yield Finding(
                "error",
                "constraint-attribute-unknown",
                subject.name,
                path,
                f"no driver publishes {attribute}",
                "a device without the attribute never satisfies the constraint, so Pods that use it wait",
                near.strip(" ()").replace("there is", "use") or "name an attribute that the devices have",
            )
            continue
        yield from _partly(subject, path, attribute, number, plan, world)
        if constraint.matchAttribute is not None:
            yield from _too_few_alike(subject, path, attribute, number, plan, world)
        else:
            yield from _too_few_values(subject, path, attribute, number, plan, world)


def _partly(subject: Subject, path: str, attribute: str, number: int, plan: Plan, world: World) -> Iterator[Finding]:
    """The attribute is published, but not by every device that the constraint is about."""
    matched = {
        info.key: info
        for alternative in plan.alternatives
        if number in alternative.constraints and alternative.program is not None
        for info in world.devices
        if alternative.program.answer(info) is True
    }
    without = [info for info in matched.values() if info.attribute(attribute) is None]
    if without:
        severity = "error" if len(without) == len(matched) else "warning"
        lack = "lacks" if len(without) == 1 else "lack"
        yield Finding(
            severity,
            "constraint-attribute-missing",
            subject.name,
            path,
            f"{len(without)} of {counted(len(matched), 'device')} that match {lack} {attribute}, "
            f"for example {without[0].key}",
            "a device without the attribute is never taken",
            "ask their driver for the attribute, or constrain by another one",
        )


def _counted(number: int, plan: Plan) -> Iterator[Alternative]:
    """Alternatives for a number of devices under the constraint; instead of one of several another may be taken."""
    for alternative in plan.alternatives:
        if number in alternative.constraints and not alternative.take_all and alternative.name == alternative.request:
            yield alternative


def _too_few_alike(
    subject: Subject, path: str, attribute: str, number: int, plan: Plan, world: World
) -> Iterator[Finding]:
    """A request for more devices than any node has with one value of the attribute."""
    for alternative in _counted(number, plan):
        if alternative.program is None:
            continue
        alike: dict[object, int] = {}
        matched = [info for info in world.devices if alternative.program.answer(info) is True]
        for info in matched:
            value = info.attribute(attribute)
            if value is not None and isinstance(value[1], str | int):
                alike[where(info), value] = alike.get((where(info), value), 0) + 1
        most = max(alike.values(), default=0)
        spread = any(info.multi or where(info) == ANYWHERE for info in matched)
        if alternative.count > most > 0 and not spread:
            yield Finding(
                "error",
                "match-too-large",
                subject.name,
                path,
                f"request {alternative.name} wants {counted(alternative.count, 'device')} with one {attribute}; "
                f"no node has more than {most}",
                "Pods that use it wait for ever",
                f"ask for {most} at most, or match a wider attribute",
            )


def _too_few_values(
    subject: Subject, path: str, attribute: str, number: int, plan: Plan, world: World
) -> Iterator[Finding]:
    """A request for more devices than any node has different values of the attribute."""
    for alternative in _counted(number, plan):
        if alternative.program is None:
            continue
        values: dict[str, set[object]] = {}
        for info in world.devices:
            value = info.attribute(attribute)
            if value is not None and alternative.program.answer(info) is True:
                values.setdefault(where(info), set()).add(str(value))
        anywhere = values.pop(ANYWHERE, set())
        most = max((len(here | anywhere) for here in [*values.values(), set()]), default=0)
        if alternative.count > most > 0:
            yield Finding(
                "error",
                "distinct-too-large",
                subject.name,
                path,
                f"request {alternative.name} wants {counted(alternative.count, 'device')} with different {attribute}; "
                f"no node has more than {counted(most, 'value')}",
                "Pods that use it wait for ever",
                f"ask for {most} at most, or tell devices apart by another attribute",
            )
