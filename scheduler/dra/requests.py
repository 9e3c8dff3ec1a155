"""The requests of the claims to be allocated, prepared once per attempt: looked up, checked, alternatives listed.

Source: kube-scheduler 1.37, structured allocator, request validation. Errors keep upstream's order: what depends on
the node (mode All) is expanded per node, and an earlier request's error wins.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.api.quantity import Quantity, QuantityError, parse_quantity
from scheduler.api.resource import (
    ALL,
    EXACT_COUNT,
    RESULTS_MAX,
    CapacityRequirements,
    DerivedAttribute,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from scheduler.api.taints import Toleration
from scheduler.dra.classes import ClassStore
from scheduler.dra.constraints import DISTINCT, MATCH, Constraint
from scheduler.dra.features import Features
from scheduler.dra.selectors import Program, SelectorCache

_Asked = ExactDeviceRequest | DeviceSubRequest
CountOf = Callable[["Alternative"], int]


@dataclass(frozen=True, slots=True, eq=False)
class Alternative:
    """One way to satisfy a request: its ``exactly`` part or one of ``firstAvailable``.

    ``name`` is what results carry (``req`` or ``req/sub``); ``count`` is 0 for mode All, whose number depends on the
    node. ``constraints`` are indices into Plan.constraints. ``static_key`` identifies everything that decides whether
    a device suits, apart from what is in use. ``problem``: upstream's error text when it cannot be handled at all.
    """

    index: int
    claim: int
    request: str
    name: str
    label: str
    place: int
    device_class: DeviceClass | None
    program: Program | None
    count: int
    take_all: bool
    admin: bool
    tolerations: tuple[Toleration, ...]
    capacity: Mapping[str, Quantity]
    derived: Mapping[str, str]
    constraints: tuple[int, ...]
    static_key: object
    problem: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedRequest:
    """A request with its alternatives; ``choice`` says that it is a firstAvailable list."""

    name: str
    choice: bool
    alternatives: tuple[Alternative, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedClaim:
    """A claim with its requests. ``problem``: a constraint that cannot be handled."""

    claim: ResourceClaim
    key: str
    requests: tuple[PreparedRequest, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What to allocate, for all nodes alike. ``problem`` is set when no node can help.

    ``simple``: the only request when no search is needed. ``solved`` keeps what long searches found, for equal nodes.
    """

    claims: tuple[PreparedClaim, ...]
    constraints: tuple[Constraint, ...]
    alternatives: tuple[Alternative, ...]
    takes_all: bool
    problem: str = ""
    simple: Alternative | None = None
    solved: dict[Hashable, object] = field(default_factory=dict)


@dataclass(slots=True)
class _Draft:
    """Growing parts of a Plan."""

    features: Features
    classes: ClassStore
    cache: SelectorCache
    alternatives: list[Alternative] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)


def prepare(claims: Sequence[ResourceClaim], classes: ClassStore, features: Features, cache: SelectorCache) -> Plan:
    """Look up and check the requests of ``claims``, to be allocated together in this order."""
    draft = _Draft(features, classes, cache)
    prepared = tuple(_prepare_claim(index, claim, draft) for index, claim in enumerate(claims))
    takes_all = any(alternative.take_all for alternative in draft.alternatives)
    problem = "" if takes_all else first_problem(prepared, lambda alternative: alternative.count)
    return Plan(
        prepared,
        tuple(draft.constraints),
        tuple(draft.alternatives),
        takes_all,
        problem,
        None if problem else _simple(prepared),
    )


def _simple(claims: Sequence[PreparedClaim]) -> Alternative | None:
    """The only alternative when there is one claim with one request for a number of devices and no constraint."""
    if len(claims) != 1 or len(claims[0].requests) != 1:
        return None
    request = claims[0].requests[0]
    only = request.alternatives[0]
    return None if request.choice or only.take_all or only.constraints else only


def first_problem(claims: Sequence[PreparedClaim], count_of: CountOf) -> str:
    """The first error in upstream's order, "" without one. ``count_of`` may raise to end the walk earlier."""
    for claim in claims:
        total = 0
        for request in claim.requests:
            if request.problem:
                return request.problem
            least = -1
            for alternative in request.alternatives:
                if alternative.problem:
                    return alternative.problem
                count = count_of(alternative)
                least = count if least < 0 else min(least, count)
            if least > RESULTS_MAX - total:
                return (
                    f"claim {claim.key}, request {request.name}: adding {least} devices exceeds the claim limit of "
                    f"{RESULTS_MAX}, with {total} already accounted for"
                )
            total += max(least, 0)
        if claim.problem:
            return claim.problem
    return ""


def _prepare_claim(index: int, claim: ResourceClaim, draft: _Draft) -> PreparedClaim:
    first = len(draft.constraints)
    problem = ""
    for number, constraint in enumerate(claim.spec.devices.constraints):
        names = frozenset(constraint.requests)
        if constraint.matchAttribute is not None:
            draft.constraints.append(Constraint(MATCH, constraint.matchAttribute, names))
        elif constraint.distinctAttribute is not None:
            draft.constraints.append(Constraint(DISTINCT, constraint.distinctAttribute, names))
        else:
            draft.constraints.append(Constraint(MATCH, "", names))
            problem = problem or (
                f"claim {claim.key}, constraint #{number}: empty constraint (unsupported constraint type?)"
            )
    requests = tuple(_prepare_request(index, claim, request, first, draft) for request in claim.spec.devices.requests)
    return PreparedClaim(claim, claim.key, requests, problem)


def _prepare_request(
    index: int, claim: ResourceClaim, request: DeviceRequest, first: int, draft: _Draft
) -> PreparedRequest:
    if not request.firstAvailable:
        only = _prepare_alternative(
            index, claim, request.name, "", request.exactly or ExactDeviceRequest(), 0, first, draft
        )
        return PreparedRequest(request.name, False, (only,))
    problem = ""
    if not draft.features.prioritized_list:
        problem = (
            f"claim {claim.key}, request {request.name}: has subrequests, but the DRAPrioritizedList feature is "
            "disabled"
        )
    elif not draft.features.consumable_capacity:
        # Upstream looks at this in all alternatives before it looks at anything else in the first one.
        problem = next(
            (_no_capacity(claim.key, sub.name) for sub in request.firstAvailable if sub.capacity is not None), ""
        )
    alternatives = tuple(
        _prepare_alternative(index, claim, request.name, sub.name, sub, place, first, draft)
        for place, sub in enumerate(request.firstAvailable)
    )
    return PreparedRequest(request.name, True, alternatives, problem)


def _no_capacity(claim_key: str, sub: str) -> str:
    return (
        f"claim {claim_key}, subrequest {sub}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
    )


def _prepare_alternative(
    index: int, claim: ResourceClaim, request: str, sub: str, asked: _Asked, place: int, first: int, draft: _Draft
) -> Alternative:
    name = f"{request}/{sub}" if sub else request
    label = sub or request
    admin = getattr(asked, "adminAccess", None)
    capacity, problem = _problem_of(claim.key, label, asked, admin, draft)
    device_class = draft.classes.get(asked.deviceClassName)
    program = None
    if device_class is not None and not problem:
        program = Program(
            device_class.name, _expressions(device_class.spec.selectors), _expressions(asked.selectors), draft.cache
        )
    take_all = asked.allocationMode == ALL
    constraints = tuple(
        first + number
        for number, constraint in enumerate(draft.constraints[first:])
        if constraint.applies(request, name)
    )
    alternative = Alternative(
        index=len(draft.alternatives),
        claim=index,
        request=request,
        name=name,
        label=label,
        place=place,
        device_class=device_class,
        program=program,
        count=0 if take_all else asked.count,
        take_all=take_all,
        admin=bool(admin),
        tolerations=asked.tolerations,
        capacity=capacity,
        derived=_derived(asked.derivedAttributes),
        constraints=constraints,
        static_key=(
            program.expressions if program else (),
            tuple(sorted((key, str(value)) for key, value in capacity.items())),
            asked.tolerations,
            take_all,
            draft.features.device_limit,
        ),
        problem=problem,
    )
    draft.alternatives.append(alternative)
    return alternative


def _problem_of(
    claim_key: str, label: str, asked: _Asked, admin: bool | None, draft: _Draft
) -> tuple[Mapping[str, Quantity], str]:
    """The capacity asked for, parsed, and the first thing in ``asked`` that cannot be handled."""
    prefix = f"claim {claim_key}, request {label}"
    features = draft.features
    if asked.capacity is not None and not features.consumable_capacity:
        return {}, f"{prefix}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
    if asked.derivedAttributes and not features.derived_attributes:
        return {}, f"{prefix}: cannot handle request with derived attributes, the feature is disabled"
    for number, selector in enumerate(asked.selectors):
        if selector.cel is None:
            return {}, f"{prefix}, selector #{number}: CEL expression empty (unsupported selector type?)"
    if admin is not None and not features.admin_access:
        return {}, f"{prefix}: admin access is requested, but the feature is disabled"
    if not asked.deviceClassName:
        return {}, f"{prefix}: missing device class name (unsupported request type?)"
    if draft.classes.get(asked.deviceClassName) is None:
        return {}, (
            f"{prefix}: could not retrieve device class {asked.deviceClassName}: "
            f'deviceclass.resource.k8s.io "{asked.deviceClassName}" not found'
        )
    if asked.allocationMode not in (ALL, EXACT_COUNT):
        return {}, f"{prefix}: unsupported count mode {asked.allocationMode}"
    try:
        return _parse_capacity(asked.capacity), ""
    except QuantityError as error:
        return {}, f"{prefix}: capacity request {error.text}: {error}"


def _parse_capacity(capacity: CapacityRequirements | None) -> dict[str, Quantity]:
    if capacity is None:
        return {}
    return {name: parse_quantity(text) for name, text in capacity.requests.items()}


def _expressions(selectors: Sequence[DeviceSelector]) -> tuple[str, ...]:
    return tuple(selector.cel.expression if selector.cel is not None else "" for selector in selectors)


def _derived(attributes: Sequence[DerivedAttribute]) -> dict[str, str]:
    return {
        attribute.name: attribute.cel.expression if attribute.cel is not None else attribute.expression
        for attribute in attributes
    }
