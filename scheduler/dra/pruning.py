"""Shortcuts that leave out only what cannot succeed: bounds on counts, alike devices, failed states remembered.

Each is allowed only where no device in state error could have been met in what is left out. The bounds need that for
their own candidates; the rest, which the search turns to when it has become long, asks about every device first.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from scheduler.dra.constraints import MATCH, SCALARS, as_set
from scheduler.dra.pools import Known
from scheduler.dra.requests import Alternative
from scheduler.dra.suitability import known
from scheduler.dra.symmetry import Symmetry
from scheduler.dra.taking import Taking


class Pruning:
    """Shortcuts for one search."""

    __slots__ = ("_counts", "_derived_known", "_lists", "_masks", "_odd", "_sets", "_taking")

    def __init__(self, taking: Taking, counts: Sequence[int], lists: Sequence[tuple[int, ...]]) -> None:
        self._taking = taking
        self._counts = counts
        self._lists = lists
        self._sets = taking.features.list_attributes
        self._masks: dict[str, Mapping[Hashable, int]] = {}
        # Devices with the attribute in a kind that cannot be compared.
        self._odd: dict[str, int] = {}
        # Derived attributes are expressions with errors of their own: False until all have been asked without one.
        self._derived_known = not any(alternative.derived for alternative in taking.plan.alternatives)

    def symmetry(self) -> Symmetry | None:
        """The likeness of devices, None when an error could hide: asks about every device that is still unknown."""
        taking = self._taking
        everything = taking.view.all_devices
        for alternative in taking.plan.alternatives:
            answers = known(taking.view, alternative)
            unknown = everything & ~answers.asked
            while unknown:
                low = unknown & -unknown
                unknown ^= low
                taking.suitability.ask(alternative, answers, low.bit_length() - 1)
            if answers.error & everything:
                return None
        if not self._derived_known:
            for alternative in taking.plan.alternatives:
                yes = known(taking.view, alternative).yes
                for position, info in enumerate(taking.view.devices):
                    if yes >> position & 1 and taking.derived_error(alternative, info):
                        return None
            self._derived_known = True
        return Symmetry(taking, self._lists)

    def enough(self, alternative: Alternative, number: int, bits: int, answers: Known) -> bool:
        """Whether the candidates ``bits`` may still complete the request; True when in doubt."""
        if bits & (~answers.asked | answers.error) or (alternative.derived and not self._derived_known):
            return True
        needed = self._counts[alternative.index] - number
        candidates = bits & answers.yes
        if candidates.bit_count() < needed:
            return False
        for index in alternative.constraints:
            constraint = self._taking.plan.constraints[index]
            if constraint.attribute in alternative.derived:
                continue
            state = self._taking.joined[index]
            masks = self._value_masks(constraint.attribute)
            if constraint.kind == MATCH:
                if not self._match_bound(masks, state, candidates, needed):
                    return False
                if state is not None and not self._sets:
                    candidates &= masks.get(state[0], 0)
            elif not self._distinct_bound(masks, state, candidates, needed, self._odd[constraint.attribute]):
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

    def _distinct_bound(
        self, masks: Mapping[Hashable, int], state: Any, candidates: int, needed: int, odd: int
    ) -> bool:
        if self._sets or (state is None and needed <= 1):
            return True
        taken = () if state is None else state
        values = sum(1 for value, mask in masks.items() if mask & candidates and value not in taken)
        # The very first device may have a value that cannot be compared.
        return values + (state is None and bool(odd & candidates)) >= needed

    def _value_masks(self, attribute: str) -> Mapping[Hashable, int]:
        """Which devices have each comparable value of an attribute; with sets, each element."""
        masks = self._masks.get(attribute)
        if masks is None:
            found: dict[Hashable, int] = {}
            odd = 0
            for position, info in enumerate(self._taking.view.devices):
                value = info.attribute(attribute)
                if value is None:
                    continue
                bit = 1 << position
                if not self._sets:
                    if value[0] in SCALARS:
                        found[value] = found.get(value, 0) | bit
                    else:
                        odd |= bit
                    continue
                elements = as_set(value)
                for element in elements[1] if elements else ():
                    key = (elements[0], element) if elements else None
                    found[key] = found.get(key, 0) | bit
            masks = self._masks[attribute] = found
            self._odd[attribute] = odd
        return masks
