"""Shortcuts that leave out only what cannot succeed: bounds on counts, and interchangeable devices tried once.

Each is allowed only where no device in state error could have been met in what is left out: every candidate must
have been asked before, and none may be an error. Then upstream would have come to the same "no", only later.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from scheduler.dra.constraints import MATCH, SCALARS, as_set
from scheduler.dra.pools import Known
from scheduler.dra.requests import Alternative
from scheduler.dra.suitability import known
from scheduler.dra.taking import Taking


class Pruning:
    """Shortcuts for one search."""

    __slots__ = ("_counts", "_masks", "_safe", "_sets", "_swappable", "_taking", "_twins")

    def __init__(self, taking: Taking, counts: Sequence[int]) -> None:
        self._taking = taking
        self._counts = counts
        self._sets = taking.features.list_attributes
        self._masks: dict[str, Mapping[Hashable, int]] = {}
        self._twins: dict[int, Hashable] = {}
        # Derived attributes are expressions with errors of their own.
        alternatives = taking.plan.alternatives
        self._safe = not any(alternative.derived for alternative in alternatives)
        # Mode All takes its devices in list order and a broken constraint there is an error: order matters then.
        self._swappable = self._safe and not any(a.take_all and a.constraints for a in alternatives)

    def enough(self, alternative: Alternative, number: int, bits: int, answers: Known) -> bool:
        """Whether the candidates ``bits`` may still complete the request; True when in doubt."""
        if not self._safe or bits & (~answers.asked | answers.error):
            return True
        needed = self._counts[alternative.index] - number
        candidates = bits & answers.yes
        if candidates.bit_count() < needed:
            return False
        for index in alternative.constraints:
            constraint = self._taking.plan.constraints[index]
            state = self._taking.joined[index]
            masks = self._value_masks(constraint.attribute)
            if constraint.kind == MATCH:
                if not self._match_bound(masks, state, candidates, needed):
                    return False
                if state is not None and not self._sets:
                    candidates &= masks.get(state[0], 0)
            elif not self._distinct_bound(masks, state, candidates, needed):
                return False
        return True

    def _match_bound(self, masks: Mapping[Hashable, int], state: Any, candidates: int, needed: int) -> bool:
        if state is None:
            # A single device of a kind that cannot be compared is accepted as the first one.
            return needed <= 1 or any((mask & candidates).bit_count() >= needed for mask in masks.values())
        if not self._sets:
            return (masks.get(state[0], 0) & candidates).bit_count() >= needed
        kind, elements = state
        return any((masks.get((kind, element), 0) & candidates).bit_count() >= needed for element in elements)

    def _distinct_bound(self, masks: Mapping[Hashable, int], state: Any, candidates: int, needed: int) -> bool:
        if self._sets or (state is None and needed <= 1):
            return True
        taken = () if state is None else state
        values = sum(1 for value, mask in masks.items() if mask & candidates and value not in taken)
        return values >= needed

    def _value_masks(self, attribute: str) -> Mapping[Hashable, int]:
        """Which devices have each comparable value of an attribute; with sets, each element."""
        masks = self._masks.get(attribute)
        if masks is None:
            found: dict[Hashable, int] = {}
            for position, info in enumerate(self._taking.view.devices):
                value = info.attribute(attribute)
                if value is None:
                    continue
                bit = 1 << position
                if not self._sets:
                    if value[0] in SCALARS:
                        found[value] = found.get(value, 0) | bit
                    continue
                elements = as_set(value)
                for element in elements[1] if elements else ():
                    key = (elements[0], element) if elements else None
                    found[key] = found.get(key, 0) | bit
            masks = self._masks[attribute] = found
        return masks

    def twin(self, alternative: Alternative, position: int) -> Hashable:
        """What two devices share when one may stand for the other; None when that is not known yet.

        With equal keys, a solution with the later device becomes one with the earlier device by swapping both.
        """
        taking = self._taking
        if not self._swappable or position in taking.shares:
            return None
        key = self._twins.get(position)
        if key is None:
            key = self._static_twin(position)
            if key is None:
                return None
            self._twins[position] = key
        if alternative.admin:
            return key, tuple(bits >> position & 1 for bits in taking.bits)
        return key

    def _static_twin(self, position: int) -> Hashable:
        taking = self._taking
        bit = 1 << position
        suits: list[bool] = []
        for alternative in taking.plan.alternatives:
            answers = known(taking.view, alternative)
            if not answers.asked & bit or answers.error & bit:
                return None
            suits.append(bool(answers.yes & bit))
        info = taking.view.devices[position]
        attributes = tuple(info.attribute(constraint.attribute) for constraint in taking.plan.constraints)
        capacities = tuple(
            (name, capacity.nano, capacity.policy and tuple(map(str, capacity.policy)))
            for name, capacity in sorted(info.capacities.items())
        )
        committed = taking.usage.consumed.get(position)
        return (
            id(info.slice),
            tuple(suits),
            attributes,
            capacities,
            taking.view.charges[position],
            tuple(consumption.groups for consumption in info.consumption),
            info.multi,
            info.taints,
            bool(taking.usage.used & bit),
            bool(taking.usage.shared & bit),
            tuple(sorted(committed.items())) if committed else None,
        )
