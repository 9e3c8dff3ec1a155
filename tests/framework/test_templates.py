"""Templates: Pods of one template share what follows from their text alone, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.core import Pod
from scheduler.api.kinds import POD, convert
from scheduler.errors import InternalError
from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import PreFilterResult
from scheduler.framework.profile import Profile
from scheduler.framework.runner import run_pre_filter
from scheduler.framework.status import SKIP, SUCCESS
from scheduler.framework.templates import TEMPLATES_MAX, template_key
from scheduler.framework.timings import PluginTimer
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info


def pod(name: str, *, labels: dict[str, str] | None = None, status: dict[str, Any] | None = None, **spec: Any) -> Pod:
    item = {
        "metadata": {"name": name, "namespace": "d", "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **spec},
        "status": status or {},
    }
    found: Pod = convert(POD, item)
    return found


class Counting:
    """A PreFilter that counts how often it is asked and keeps a value of its own."""

    name = "Counting"
    by_template = True

    def __init__(self) -> None:
        self.asked = 0

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        self.asked += 1
        cycle.data[self.name] = cycle.pod.metadata.labels.get("kept")
        return PreFilterResult(SKIP if "skip" in cycle.pod.metadata.labels else SUCCESS)


class Living(Counting):
    name = "Living"
    by_template = False


def cycle_of(found: Pod, state: ClusterState) -> Cycle:
    return Cycle(found, pod_info(found), state)


@pytest.fixture
def state() -> ClusterState:
    return ClusterState()


def test_pods_of_one_template_are_asked_about_once(state: ClusterState) -> None:
    counting, living = Counting(), Living()
    profile = Profile("p", {}, pre_filter=(counting, living))
    for index in range(3):
        cycle = cycle_of(pod(f"p{index}", labels={"kept": "v"}), state)
        assert run_pre_filter(profile, cycle).rejection is None
        assert cycle.data == {"Counting": "v", "Living": "v"}
    assert (counting.asked, living.asked) == (1, 3)


def test_skips_are_kept_too(state: ClusterState) -> None:
    profile = Profile("p", {}, pre_filter=(Counting(),))
    for index in range(2):
        cycle = cycle_of(pod(f"p{index}", labels={"skip": ""}), state)
        run_pre_filter(profile, cycle)
        assert cycle.skip_filter == {"Counting"}


def test_another_label_is_another_template(state: ClusterState) -> None:
    counting = Counting()
    profile = Profile("p", {}, pre_filter=(counting,))
    for value in "ab":
        run_pre_filter(profile, cycle_of(pod("p", labels={"kept": value}), state))
    assert counting.asked == 2


@pytest.mark.parametrize(
    "status",
    [
        {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}}]},
        {"resources": {"requests": {"cpu": "2"}}},
    ],
)
def test_a_pod_whose_status_has_a_say_has_no_template(status: dict[str, Any]) -> None:
    assert template_key(pod("p")) is not None
    assert template_key(pod("p", status=status)) is None


def test_names_uids_and_conditions_make_no_template() -> None:
    conditions = {"conditions": [{"type": "PodScheduled", "status": "False"}]}
    assert template_key(pod("a")) == template_key(pod("b", status=conditions))


def test_cycles_that_are_measured_ask_everybody(state: ClusterState) -> None:
    counting = Counting()
    profile = Profile("p", {}, pre_filter=(counting,))
    for index in range(2):
        cycle = cycle_of(pod(f"p{index}"), state)
        cycle.timer = PluginTimer(lambda: 0.0, lambda *_: None)
        run_pre_filter(profile, cycle)
    assert counting.asked == 2


def test_templates_are_bounded(state: ClusterState) -> None:
    """Also what is kept of each for its verification, which may never come; those in use stay."""
    profile = Profile("p", {}, pre_filter=(Counting(),))
    for index in range(2 * TEMPLATES_MAX):
        for label in (str(index), str(index), "often"):
            run_pre_filter(profile, cycle_of(pod("p", labels={"index": label}), state))
    templates = profile.templates
    assert len(templates) == TEMPLATES_MAX
    assert templates._used.keys() <= templates._known.keys()
    known = len(templates)
    run_pre_filter(profile, cycle_of(pod("p", labels={"index": "often"}), state))
    assert len(templates) == known


def test_a_plugin_that_declared_too_much_is_found(state: ClusterState) -> None:
    """It reads something else than the Pod: verify asks again and says which plugin and Pod."""

    class Lying(Counting):
        name = "Lying"

        def pre_filter(self, cycle: Cycle) -> PreFilterResult:
            self.asked += 1
            return PreFilterResult(SKIP if self.asked > 1 else SUCCESS)

    profile = Profile("p", {}, pre_filter=(Lying(),))
    for index in range(2):
        run_pre_filter(profile, cycle_of(pod(f"p{index}"), state))
    with pytest.raises(InternalError, match="PreFilter of Lying kept for pod d/p1 is stale"):
        profile.templates.verify(profile, state)
