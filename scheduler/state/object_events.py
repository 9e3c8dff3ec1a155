"""Which cluster events an update of a Pod or of a node amounts to.

Source: kube-scheduler 1.37, framework/events (spec 4.9). The order of the events is upstream's.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.api.core import Node, Pod, QuantityText
from scheduler.api.meta import Condition
from scheduler.api.podrequests import pod_requests
from scheduler.api.quantity import QuantityError, parse_quantity
from scheduler.errors import UserError
from scheduler.state.events import Action, ClusterEvent, Resource


def pod_update_events(old: Pod, new: Pod, resource: Resource) -> list[ClusterEvent]:
    """The events of a Pod's update, at least one: without a specific change it is a generic update.

    ``resource`` is TARGET_POD for a waiting Pod and ASSIGNED_POD for one with a node. A generic update is what the
    scheduler's own condition write amounts to; only registrations for every update hear of it.
    """
    actions: list[Action] = []
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    actions += _scale_actions(old, new)
    if old.spec.schedulingGates and not new.spec.schedulingGates:
        actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    # The API lets tolerations only be added, so the count tells.
    if len(old.spec.tolerations) != len(new.spec.tolerations):
        actions.append(Action.UPDATE_POD_TOLERATION)
    if (
        old.status.resourceClaimStatuses != new.status.resourceClaimStatuses
        or old.status.extendedResourceClaimStatus != new.status.extendedResourceClaimStatus
    ):
        actions.append(Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    return [ClusterEvent(resource, action, old, new) for action in actions or [Action.UPDATE_OTHER]]


def node_update_events(old: Node, new: Node) -> list[ClusterEvent]:
    """One event per changed aspect, none when nothing that plugins look at changed (a heartbeat, for example).

    Uncordoning counts as a change of taints, and again when the taint itself went with it.
    """
    actions: list[Action] = []
    if old.spec.unschedulable and not new.spec.unschedulable:
        actions.append(Action.UPDATE_NODE_TAINT)
    if _amounts_differ(old.status.allocatable, new.status.allocatable):
        actions.append(Action.UPDATE_NODE_ALLOCATABLE)
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_NODE_LABEL)
    if old.spec.taints != new.spec.taints:
        actions.append(Action.UPDATE_NODE_TAINT)
    if _condition_statuses(old.status.conditions) != _condition_statuses(new.status.conditions):
        actions.append(Action.UPDATE_NODE_CONDITION)
    if old.metadata.annotations != new.metadata.annotations:
        actions.append(Action.UPDATE_NODE_ANNOTATION)
    if old.status.declaredFeatures != new.status.declaredFeatures:
        actions.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return [ClusterEvent(Resource.NODE, action, old, new) for action in actions]


def _scale_actions(old: Pod, new: Pod) -> list[Action]:
    """SCALE_DOWN, SCALE_UP or both, by the requests as the kubelet has actuated them."""
    if old.spec is new.spec and old.status is new.status:
        return []
    try:
        before, after = pod_requests(old, use_status=True), pod_requests(new, use_status=True)
    except UserError:  # a quantity that is none: nothing to compare, so let everybody look who asks for either
        return [] if old.spec == new.spec else [Action.UPDATE_POD_SCALE_DOWN, Action.UPDATE_POD_SCALE_UP]
    names = before.keys() | after.keys()
    actions: list[Action] = []
    if any(before.get(name, 0) > after.get(name, 0) for name in names):
        actions.append(Action.UPDATE_POD_SCALE_DOWN)
    if any(before.get(name, 0) < after.get(name, 0) for name in names):
        actions.append(Action.UPDATE_POD_SCALE_UP)
    return actions


def _amounts_differ(old: Mapping[str, QuantityText], new: Mapping[str, QuantityText]) -> bool:
    """True when a resource came, went or changed its amount; ``1`` and ``1000m`` are equal."""
    if old == new:
        return False
    if old.keys() != new.keys():
        return True
    return any(_amounts_unequal(old[name], new[name]) for name in old)


def _amounts_unequal(old: QuantityText, new: QuantityText) -> bool:
    if old == new:
        return False
    try:
        return parse_quantity(str(old)) != parse_quantity(str(new))
    except QuantityError:
        return True


def _condition_statuses(conditions: tuple[Condition, ...]) -> dict[str, str]:
    """Heartbeat times, reasons and messages are no change."""
    return {condition.type: condition.status for condition in conditions}
