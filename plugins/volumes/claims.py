"""What all volume plugins ask about claims: texts, wake-ups by claim, sizes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scheduler.api.core import Pod, QuantityText
from scheduler.api.quantity import Quantity, QuantityError, parse_quantity
from scheduler.api.storage import PersistentVolumeClaim
from scheduler.framework.events import Action, Registration, Resource
from scheduler.state.attached import claim_keys

ZERO = parse_quantity("0")


def claim_not_found(name: str) -> str:
    """Upstream's text for a claim that does not exist."""
    return f'persistentvolumeclaim "{name}" not found'


def class_not_found(name: str) -> str:
    """Upstream's text for a storage class that does not exist."""
    return f'storageclass.storage.k8s.io "{name}" not found'


def amount(text: QuantityText | None) -> Quantity:
    """A size; nothing and nonsense are 0 (the API server admits neither)."""
    if text is None:
        return ZERO
    try:
        return parse_quantity(str(text))
    except QuantityError:
        return ZERO


def amount_bytes(text: QuantityText | None) -> int:
    """A size in bytes, rounded up."""
    return amount(text).value()


def own_claim(actions: Action) -> Registration:
    """Wakes the Pods that use the claim."""
    return Registration(Resource.PERSISTENT_VOLUME_CLAIM, actions, uses_claim, claim_keys, _event_keys)


def uses_claim(pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> bool:
    """True when the claim is one of the Pod's."""
    claim = new or old
    return claim is not None and claim.key in claim_keys(pod)


def _event_keys(old: Any, new: Any) -> Iterable[str]:
    return {claim.key for claim in (old, new) if claim is not None}
