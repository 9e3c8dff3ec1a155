"""Whether a device suits an alternative, leaving aside what is in use: selectors, place, capacity, features, taints.

The answer is static per node view and request shape, so it is kept as bitmaps in the view. Errors are answers too:
they end the attempt only when the search reaches the device.
"""

from __future__ import annotations

from scheduler.api.taints import first_untolerated
from scheduler.dra.capacity import CapacityAnswer, static_answer
from scheduler.dra.devices import DeviceInfo
from scheduler.dra.features import EXPERIMENTAL, Features
from scheduler.dra.pools import Known, NodeView
from scheduler.dra.rejections import Reason, Rejection
from scheduler.dra.requests import Alternative, PreparedClaim
from scheduler.dra.selectors import SelectorFailure
from scheduler.errors import InternalError

NODE_FEATURE = "DRAOptionalNodeOperations"
# What it takes to ask about one device beside evaluating, in CEL cost units: some 20 to 50 microseconds.
_ASK_COST = 100
# Request shapes kept per view; old Pods' shapes are dropped together.
_SHAPES_MAX = 128


def known(view: NodeView, alternative: Alternative) -> Known:
    """The bitmaps of what has been asked so far for requests of this shape."""
    answers = view.answers.get(alternative.static_key)
    if answers is None:
        if len(view.answers) >= _SHAPES_MAX:
            view.answers.clear()
        answers = view.answers[alternative.static_key] = Known()
    return answers


class SuspendedError(Exception):
    """The budget for selectors is used up: what has been asked is remembered, go on with the same question later."""


class Meter:
    """CEL cost units left before a search must yield, and those spent so far."""

    __slots__ = ("left", "spent")

    def __init__(self, left: int) -> None:
        self.left = left
        self.spent = 0


class Suitability:
    """Static answers for one node view under given features. With a ``meter``, asking may raise SuspendedError."""

    __slots__ = ("_experimental", "_features", "_meter", "_view")

    def __init__(self, view: NodeView, features: Features, meter: Meter | None = None) -> None:
        self._view = view
        self._features = features
        self._meter = meter
        self._experimental = features.channel == EXPERIMENTAL

    def ask(self, alternative: Alternative, answers: Known, position: int) -> None:
        """Find out about one device and note it in ``answers``."""
        bit = 1 << position
        info = self._view.devices[position]
        meter, program = self._meter, alternative.program
        if meter is None or program is None:
            selected = self.selected(alternative, info, position)
        else:
            if meter.left <= 0:
                raise SuspendedError
            before = program.cost
            selected = self.selected(alternative, info, position)
            cost = program.cost - before + _ASK_COST
            meter.left -= cost
            meter.spent += cost
        if selected is True:
            capacity = self.capacity(alternative, info)
            if capacity.fatal:
                answers.error |= bit
            elif not capacity.refused and (alternative.take_all or self.takeable(alternative, info)):
                answers.yes |= bit
        elif selected is not False:
            answers.error |= bit
        answers.asked |= bit

    def selected(self, alternative: Alternative, info: DeviceInfo, position: int) -> bool | SelectorFailure:
        """Selectors of class and request, then the device's own node selection."""
        if info.device.bindingConditions and not self._features.binding_conditions:
            return False
        if not self.allowed(info):
            return False
        program = alternative.program
        assert program is not None
        answer = program.answer(info)
        if answer is True and not self._view.here >> position & 1:
            return False
        return answer

    def allowed(self, info: DeviceInfo) -> bool:
        """Whether the profile may give the device away at all."""
        limit = self._features.device_limit
        return limit is None or limit.allows(info.key.driver, info.key.pool)

    def capacity(self, alternative: Alternative, info: DeviceInfo) -> CapacityAnswer:
        """What the request takes of the device's capacities, remembered per device."""
        if not self._features.consumable_capacity:
            return _NO_CAPACITY
        if not alternative.capacity and not info.capacities:
            return _NO_CAPACITY
        question = ("capacity", self._features.fractional_capacity, *alternative.capacity.items())
        answer: CapacityAnswer | None = info.verdicts.get(question)
        if answer is None:
            answer = static_answer(info, alternative.capacity, self._features.fractional_capacity)
            info.remember(question, answer)
        return answer

    def takeable(self, alternative: Alternative, info: DeviceInfo) -> bool:
        """What refuses a device at the moment it is taken, whatever is in use: features and taints."""
        return self.missing_feature(info) == "" and not self.tainted(alternative, info)

    def tainted(self, alternative: Alternative, info: DeviceInfo) -> bool:
        """Whether a taint of the device keeps the request away."""
        return bool(
            self._features.device_taints
            and info.taints
            and first_untolerated(info.taints, alternative.tolerations) is not None
        )

    def missing_feature(self, info: DeviceInfo) -> str:
        """The feature that the device needs and scheduler or node lack, "" for none."""
        if info.consumption and not self._features.partitionable_devices:
            return "DRAPartitionableDevices is disabled"
        if self._experimental and info.slice.slice.spec.skipNodeOperations:
            if not self._features.optional_node_operations:
                return f"{NODE_FEATURE} is disabled"
            if NODE_FEATURE not in self._view.declared_features:
                return f"the node does not declare {NODE_FEATURE}"
        return ""

    def error_text(self, alternative: Alternative, claim: PreparedClaim, position: int) -> str:
        """Upstream's words for a device in state error, "" when it is not."""
        info = self._view.devices[position]
        selected = self.selected(alternative, info, position)
        if selected is True:
            fatal = self.capacity(alternative, info).fatal
            device = info.key.device if alternative.take_all else str(info.key)
            start = f"claim {claim.key}, request {alternative.label}: checking capacity for device {device}: "
            return start + fatal if fatal else ""
        if selected is False:
            return ""
        assert alternative.program is not None
        return alternative.program.failure_text(selected, claim.key, info)

    def rejection(self, alternative: Alternative, claim: PreparedClaim, position: int) -> Rejection | None:
        """Why a device does not suit, None when it does."""
        info = self._view.devices[position]
        reason, detail = self._why(alternative, claim, info, position)
        return None if reason is None else Rejection(reason, claim.key, alternative.name, info.key, detail)

    def _why(
        self, alternative: Alternative, claim: PreparedClaim, info: DeviceInfo, position: int
    ) -> tuple[Reason | None, dict[str, str]]:
        if info.device.bindingConditions and not self._features.binding_conditions:
            return Reason.NOT_SUPPORTED, {"because": "DRADeviceBindingConditions is disabled"}
        if not self.allowed(info):
            return Reason.NOT_SUPPORTED, {"because": "the profile is kept to other drivers or pools"}
        selected = self.selected(alternative, info, position)
        error = self.error_text(alternative, claim, position)
        if error:
            guard = ""
            if isinstance(selected, SelectorFailure) and alternative.program is not None:
                guard = alternative.program.guard(selected, info)
            return Reason.SELECTOR_ERROR, {"error": error} | ({"guard": guard} if guard else {})
        if selected is False:
            assert alternative.program is not None
            refusing = alternative.program.refusing(info)
            return (Reason.SELECTOR_FALSE, {"selector": refusing}) if refusing else (Reason.NOT_ON_NODE, {})
        capacity = self.capacity(alternative, info)
        if capacity.refused:
            amounts = {"asked": capacity.asked, "total": capacity.total} if capacity.asked else {}
            return Reason.CAPACITY_SHORT, {"capacity": capacity.refused, "because": capacity.detail, **amounts}
        missing = self.missing_feature(info)
        if missing:
            return Reason.NOT_SUPPORTED, {"because": missing}
        if self.tainted(alternative, info):
            taint = first_untolerated(info.taints, alternative.tolerations)
            assert taint is not None
            return Reason.TAINTED, {"taint": f"{taint.key}={taint.value}:{taint.effect}"}
        return None, {}


def verify_answers(view: NodeView, alternative: Alternative, features: Features) -> None:
    """Ask again about every device that was asked about. Raises InternalError on a difference."""
    answers = view.answers.get(alternative.static_key)
    if answers is None or alternative.program is None:
        return
    suitability, fresh = Suitability(view, features), Known()
    for position, info in enumerate(view.devices):
        if answers.asked >> position & 1:
            alternative.program.verify(info)
            suitability.ask(alternative, fresh, position)
    if fresh != answers:
        raise InternalError(f"answers about the devices of node {view.node_name}: kept {answers}, now {fresh}")


_NO_CAPACITY = CapacityAnswer()
