"""Waiting for binding conditions before the Pod is bound.

Source: kube-scheduler 1.37, DynamicResources PreBind: tested at once, then every 5 s, 600 s by default.
"""

from __future__ import annotations

from plugins.dynamic_resources.attempt import ClaimsOfPod
from scheduler.dra.claims import binding_state, has_binding_conditions
from scheduler.framework.cycle import Cycle
from scheduler.framework.instructions import WaitUntil

POLL_S = 5.0


def binding_wait(cycle: Cycle, attempt: ClaimsOfPod, node: str, timeout_s: float) -> WaitUntil | None:
    """The wait for all claims of the attempt, None when no allocated device has binding conditions."""
    promised = any(
        result.bindingConditions for allocation in attempt.reserved.values() for result in allocation.devices.results
    )
    if not promised and not any(has_binding_conditions(held.claim) for held in attempt.held):
        return None
    claims = cycle.state.devices.claims
    keys = [claim.key for claim in attempt.claims]
    seen = set(keys)

    def awaited() -> list[str]:
        """The claim for extended resources has a name only once it is stored, and is known once the watch shows it."""
        made = None if attempt.extended is None else attempt.extended.created
        return keys if made is None else [*keys, made.key]

    def ready() -> str | None:
        """None: go on waiting; "": all ready; else why not."""
        waiting = False
        for key in awaited():
            claim = claims.get(key)
            if claim is None and key in seen:
                return f"claim {key} is gone while waiting for its binding conditions"
            if claim is None:
                waiting = True
                continue
            seen.add(key)
            met, failure = binding_state(claim)
            if failure:
                return failure
            waiting = waiting or not met
        return None if waiting else ""

    return WaitUntil(
        ready,
        timeout_s,
        POLL_S,
        "device binding timeout: context deadline exceeded",
        "BindingConditionsPending",
        f"waiting for binding conditions for device on node {node}",
        _drivers(attempt),
    )


def _drivers(attempt: ClaimsOfPod) -> tuple[str, ...]:
    """Whose devices have binding conditions, sorted."""
    stored = (held.claim.status.allocation for held in attempt.held)
    return tuple(
        sorted(
            {
                result.driver
                for allocation in (*attempt.reserved.values(), *stored)
                if allocation is not None
                for result in allocation.devices.results
                if result.bindingConditions
            }
        )
    )
