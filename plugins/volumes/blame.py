"""Which of a Pod's volume claims keeps it off a node, found by planning for each of them alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from plugins.volumes.claims import amount_bytes
from plugins.volumes.plan import BIND_CONFLICT, NO_SPACE, NODE_CONFLICT, VOLUME_MISSING, PodClaims, make_plan
from scheduler.api.storage import PersistentVolumeClaim
from scheduler.framework.because import Because
from scheduler.state.nodes import NodeTable
from scheduler.state.volumes import VolumeState


def blame(state: VolumeState, nodes: NodeTable, row: int, claims: PodClaims) -> Iterator[Because]:
    """One entry per claim that cannot be had on the row. Cost: a plan for one node per claim."""
    rows = np.asarray([row], np.int64)
    named = 0
    for claim in (*claims.bound, *claims.delayed):
        bound = claim in claims.bound
        alone = PodClaims((claim,), ()) if bound else PodClaims((), (claim,))
        flags = int(make_plan(state, nodes, rows, alone).flags[0])
        if flags:
            named += 1
            yield _because(state, claim, flags)
    if not named and int(make_plan(state, nodes, rows, claims).flags[0]):
        keys = ", ".join(claim.key for claim in claims.delayed)
        text = f"each of the claims {keys} could get a volume here, but not all of them together"
        yield Because("together", text, {"claims": keys})


def _because(state: VolumeState, claim: PersistentVolumeClaim, flags: int) -> Because:
    facts = {"claim": claim.key, "class": claim.class_name, "volume": claim.spec.volumeName}
    about = f"claim {claim.key}"
    if flags & VOLUME_MISSING:
        return Because(about, f"{about} is bound to volume {claim.spec.volumeName}, which does not exist", facts)
    if flags & NODE_CONFLICT:
        volume = state.volumes.get(claim.spec.volumeName)
        where = _where(volume) if volume is not None else ""
        text = f"{about}: volume {claim.spec.volumeName} cannot be used from here{where}"
        return Because(about, text, facts)
    if flags & NO_SPACE:
        asked = "" if claim.requested is None else str(claim.requested)
        stocks = state.capacities.get(claim.class_name, {}).values()
        most = max((amount_bytes(s.capacity) for s in stocks if s.capacity is not None), default=0)
        text = f"{about}: {asked} of class {claim.class_name} asked, and no stock within reach has that much"
        return Because(about, text, facts | {"asked": asked, "largest stock anywhere (bytes)": str(most)})
    if flags & BIND_CONFLICT and claim.selected_node is not None:
        text = f"{about}: its volume is being made on node {claim.selected_node}"
        return Because(about, text, facts | {"node": claim.selected_node})
    free = len(state.volumes_of_class(claim.class_name))
    storage = state.classes.get(claim.class_name)
    maker = "" if storage is None else storage.provisioner
    text = f"{about}: none of {free} volumes of class {claim.class_name} suits, and {maker or 'nobody'} makes none here"
    return Because(about, text, facts | {"volumes": str(free), "provisioner": maker})


def _where(volume: object) -> str:
    selector = getattr(volume, "selector", None)
    words = [
        f"{rule.key} {rule.operator} {', '.join(rule.values)}".rstrip()
        for term in (selector.nodeSelectorTerms if selector is not None else ())
        for rule in (*term.matchExpressions, *term.matchFields)
    ]
    return f" (it wants {' or '.join(words)})" if words else ""
