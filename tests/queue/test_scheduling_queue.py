"""The scheduling queue: order, back-off, gates, wake-ups, what is missed in flight."""

from __future__ import annotations

import math

import pytest

from scheduler.errors import InternalError
from scheduler.framework.events import Action, ClusterEvent, Resource
from scheduler.framework.status import unschedulable
from scheduler.queue.hooks import ProfileHooks
from scheduler.queue.pod import Place
from tests.queue.queue_world import (
    NODE_ADD,
    NODE_LABEL,
    POD_GONE,
    PROFILE,
    SLICE_ADD,
    Recorder,
    hold_gated,
    make_pod,
    make_queue,
    registrations,
    reject,
)

T = 1000.25


def popped(queue, now=T):
    """Names in the order of pop, until nothing is ready."""
    names = []
    while (queued := queue.pop(now)) is not None:
        names.append(queued.pod.metadata.name)
        queue.check()
    return names


class TestOrder:
    def test_priority_then_age_then_arrival(self):
        """The higher priority goes first, then the older, and equals go in order of arrival."""
        queue = make_queue()
        for name, priority, at in (("a", 0, 5), ("b", 9, 6), ("c", 0, 4), ("d", 0, 4)):
            queue.add(make_pod(name, priority=priority), at)
        assert popped(queue) == ["b", "c", "d", "a"]

    def test_pop_counts_attempts_and_clears_the_last_verdict(self):
        """A popped Pod is in flight with one more attempt and no plugins of the attempt before."""
        queue = make_queue()
        reject(queue, make_pod("a"), T, "Fit")
        queue.move([NODE_ADD], T)
        queued = queue.pop(T)
        assert (queued.attempts, queued.place, queued.unschedulable_plugins) == (2, Place.IN_FLIGHT, frozenset())
        assert queued.initial_attempt_timestamp == T

    def test_empty_queue_pops_nothing(self):
        """With nothing ready pop answers None and the counts are zero."""
        queue = make_queue()
        assert queue.pop(T) is None
        assert queue.counts() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}

    def test_update_moves_an_active_pod_to_its_new_place(self):
        """A ready Pod whose sort key changes is re-sorted, and the new object is what comes out."""
        queue = make_queue()
        old, new = make_pod("b"), make_pod("b", priority=5, version="2")
        queue.add(make_pod("a"), 1)
        queue.add(old, 2)
        queue.update(old, new, 3)
        queue.check()
        assert queue.pop(T).pod is new

    @pytest.mark.parametrize("where", ["ready", "waiting", "in flight"])
    def test_a_pod_under_another_name_is_another_pod(self, where):
        """No server renames one, but spoilt bytes do: the queue agrees with itself, also when the name comes back."""
        queue, pod, renamed = make_queue(), make_pod("a"), make_pod("b", uid="u-a", version="2")
        if where == "waiting":
            reject(queue, pod, T, "Fit")
        else:
            queue.add(pod, 1)
            queued = queue.pop(T) if where == "in flight" else None
        queue.update(pod, renamed, 3)
        queue.check()
        queue.update(renamed, make_pod("a", version="3"), 4)
        queue.check()
        if where == "in flight":
            queue.requeue(queued, make_pod("a", version="3"), ["Fit"], [], T)
            queue.check()
        else:
            assert popped(queue) == ["a"]

    def test_foreign_profile_is_refused(self):
        """A Pod of a scheduler that no profile serves is a mistake of the caller."""
        with pytest.raises(InternalError, match="no profile is named 'other'"):
            make_queue().add(make_pod("a", profile="other"), T)


class TestBackoff:
    @pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10), (99, 10)])
    def test_doubles_up_to_the_maximum(self, failures, seconds):
        """Back-off is 1, 2, 4, 8, 10, 10 … seconds and ends on a whole second."""
        queue = make_queue()
        pod = make_pod("a")
        queue.add(pod, 0)
        for _ in range(failures):
            queued = queue.pop(T)
            queue.requeue(queued, pod, ["Fit"], [], T)
            queue.move([NODE_ADD], T)
        assert queued.backoff_expiration == math.floor(T + seconds)
        assert queued.place is Place.BACKOFF

    def test_leaves_at_the_first_whole_second_after_expiry(self):
        """A Pod that failed at 1000.25 leaves at 1002.0: its back-off ends in second 1001, which must have passed."""
        queue = make_queue()
        queued = reject(queue, make_pod("a"), T)  # an error: nothing pops it early
        assert queued.place is Place.ERROR_BACKOFF
        assert queue.next_wakeup(T) == pytest.approx(1002 - T)
        assert queue.flush(1001.99) == 0
        assert queue.flush(1002.0) == 1
        assert queued.place is Place.ACTIVE

    def test_zero_maximum_switches_it_off(self):
        """podMaxBackoffSeconds 0: a failed Pod is ready at once."""
        queue = make_queue(max_backoff_s=0)
        assert reject(queue, make_pod("a"), T).place is Place.ACTIVE

    def test_idle_queue_takes_a_pod_out_of_backoff_early(self):
        """With no active Pod the head of the back-off queue is tried at once, after a rejection only."""
        recorder = Recorder()
        queue = make_queue(recorder)
        reject(queue, make_pod("rejected"), T, "Fit")
        queue.move([NODE_ADD], T)
        reject_error = make_pod("broken", priority=1)
        queue.add(reject_error, T)
        queue.requeue(queue.pop(T), reject_error, [], [], T)
        assert queue.counts()["backoff"] == 2
        assert popped(queue) == ["rejected"]
        assert recorder.entries[-1] == ("active", "PopFromBackoffQ")

    def test_active_pods_go_before_pods_in_backoff(self):
        """The back-off queue is only looked at when nothing is active."""
        queue = make_queue()
        reject(queue, make_pod("rejected", priority=9), T, "Fit")
        queue.move([NODE_ADD], T)
        queue.add(make_pod("fresh"), T)
        assert popped(queue) == ["fresh", "rejected"]

    def test_errors_and_rejections_count_apart(self):
        """An error backs off on its own count, and a rejection ends the row of errors."""
        queue = make_queue()
        pod = make_pod("a")
        queue.add(pod, 0)
        now = T
        for plugins in ([], [], []):
            queued = queue.pop(now)
            queue.requeue(queued, pod, plugins, [], now)
            now += 100
            queue.flush(now)
        assert (queued.consecutive_errors, queued.unschedulable_count) == (3, 0)
        queue.requeue(queue.pop(now), pod, ["Fit"], [], now)
        assert (queued.consecutive_errors, queued.unschedulable_count) == (0, 1)
        assert queued.backoff_expiration == math.floor(now + 1)

    def test_backoff_completes_in_order_of_expiry(self):
        """flush lets everything go whose second has passed and nothing else."""
        recorder = Recorder()
        queue = make_queue(recorder)
        for name, at in (("a", 10.0), ("b", 10.5), ("c", 12.0)):
            reject(queue, make_pod(name), at)
        assert queue.flush(12.0) == 2
        assert queue.counts() == {"active": 2, "backoff": 1, "unschedulable": 0, "gated": 0}
        assert recorder.entries[-2:] == [("active", "BackoffComplete")] * 2


class TestWakeUps:
    def test_only_the_rejecting_plugins_events_wake(self):
        """A Pod that Devices rejected sleeps through node events and wakes for a slice."""
        queue = make_queue()
        queued = reject(queue, make_pod("a"), T, "Devices")
        assert queued.place is Place.UNSCHEDULABLE
        assert queue.move([NODE_ADD, NODE_LABEL, POD_GONE], T) == 0
        assert queue.move([SLICE_ADD], T) == 1
        assert queued.place is Place.BACKOFF

    def test_after_its_backoff_a_woken_pod_is_active(self):
        """An event that comes after the back-off has run out makes the Pod ready."""
        queue = make_queue()
        queued = reject(queue, make_pod("a"), T, "Fit")
        queue.move([NODE_ADD], T + 60)
        assert queued.place is Place.ACTIVE

    def test_hint_decides(self):
        """A hint that says Skip leaves the Pod where it is; the hint gets the Pod, the old and the new object."""
        asked = []

        def fit(pod, old, new):
            asked.append((pod.metadata.name, old, new))
            return pod.metadata.name == "b"

        recorder = Recorder()
        queue = make_queue(recorder, fit=fit)
        reject(queue, make_pod("a"), T, "Fit")
        reject(queue, make_pod("b"), T, "Fit")
        assert queue.move([NODE_ADD], T) == 1
        assert asked == [("a", None, "n1"), ("b", None, "n1")]
        assert recorder.hints == [("Fit", False), ("Fit", True)]
        assert queue.get("u-a").place is Place.UNSCHEDULABLE

    def test_hint_that_raises_queues(self):
        """A hint that fails wakes the Pod and is reported."""

        def fit(pod, old, new):
            raise RuntimeError("broken hint")

        recorder = Recorder()
        queue = make_queue(recorder, fit=fit)
        reject(queue, make_pod("a"), T, "Fit")
        assert queue.move([NODE_ADD], T) == 1
        assert recorder.failures == ["Fit ns/a broken hint"]

    def test_pending_plugin_skips_backoff(self):
        """Queue from a pending plugin makes the Pod active at once, though an unschedulable plugin also said Queue."""
        queue = make_queue()
        queued = reject(queue, make_pod("a"), T, "Labels", pending=("Fit",))
        queue.move([NODE_ADD], T)
        assert queued.place is Place.ACTIVE

    def test_unschedulable_plugin_of_a_pending_pod_waits_for_backoff(self):
        """A pending Pod that another plugin's event wakes still backs off."""
        queue = make_queue()
        queued = reject(queue, make_pod("a"), T, "Fit", pending=("Devices",))
        queue.move([NODE_ADD], T)
        assert queued.place is Place.BACKOFF

    def test_plugin_without_registrations_is_woken_by_everything(self):
        """A rejecting plugin that never said what it wants hears of every event."""
        queue = make_queue()
        queued = reject(queue, make_pod("a"), T, "Extender")
        queue.flush(T + 5)
        queue.requeue(queue.pop(T + 5), queued.pod, ["Extender"], [], T + 5)
        assert queued.place is Place.UNSCHEDULABLE
        assert queue.move([ClusterEvent(Resource.CSI_NODE, Action.ADD)], T + 5) == 1

    def test_first_rejection_by_an_open_plugin_retries(self):
        """Nobody recorded events for a plugin unknown so far, so its first Pod retries after back-off."""
        queue = make_queue()
        assert reject(queue, make_pod("a"), T, "Extender").place is Place.BACKOFF

    def test_wildcard_with_a_pod_concerns_that_pod_only(self):
        """A wildcard event that carries a Pod wakes that Pod; one without wakes all."""
        queue = make_queue()
        one, other = (reject(queue, make_pod(name), T, "Fit") for name in "ab")
        queue.move([ClusterEvent(Resource.ANY, Action.ALL, None, one.pod, "Special")], T)
        assert (one.place, other.place) == (Place.BACKOFF, Place.UNSCHEDULABLE)
        queue.move([ClusterEvent(Resource.ANY, Action.ALL, special="Special")], T)
        assert other.place is Place.BACKOFF

    def test_narrowed_move(self):
        """A nomination given back is news for Pods of at most that priority only."""
        queue = make_queue()
        low = reject(queue, make_pod("low", priority=5), T, "Fit")
        high = reject(queue, make_pod("high", priority=9), T, "Fit")
        assert queue.release_nomination(make_pod("n", priority=5), T) == 1
        assert (low.place, high.place) == (Place.BACKOFF, Place.UNSCHEDULABLE)

    def test_profiles_have_their_own_registrations(self):
        """An event wakes the Pods of the profile whose plugin asked for it, and no other's."""
        hooks = {PROFILE: ProfileHooks(hold_gated, registrations()), "quiet": ProfileHooks(hold_gated, {"Fit": []})}
        queue = make_queue(hooks=hooks)
        ours = reject(queue, make_pod("a"), T, "Fit")
        quiet = reject(queue, make_pod("b", profile="quiet"), T, "Fit")
        queue.move([NODE_ADD], T)
        assert (ours.place, quiet.place) == (Place.BACKOFF, Place.UNSCHEDULABLE)


class TestInFlight:
    def test_event_missed_during_the_attempt_is_replayed(self):
        """An event between pop and requeue sends the Pod to back-off instead of to sleep."""
        queue = make_queue()
        pod = make_pod("a")
        queue.add(pod, T)
        queued = queue.pop(T)
        queue.move([SLICE_ADD, NODE_ADD], T)
        queue.requeue(queued, pod, ["Fit"], [], T)
        assert queued.place is Place.BACKOFF

    def test_event_before_the_pop_is_not(self):
        """Only events since the Pod's own pop count, though another Pod in flight keeps older ones."""
        queue = make_queue()
        first, second = make_pod("a", priority=1), make_pod("b")
        queue.add(first, T)
        queue.add(second, T)
        one = queue.pop(T)
        queue.move([NODE_ADD], T)
        two = queue.pop(T)
        queue.requeue(two, second, ["Fit"], [], T)
        queue.requeue(one, first, ["Fit"], [], T)
        queue.check()
        assert (one.place, two.place) == (Place.BACKOFF, Place.UNSCHEDULABLE)

    def test_pending_replay_is_immediate(self):
        """A missed event of a pending plugin beats an earlier one that only ends after back-off."""
        queue = make_queue()
        pod = make_pod("a")
        queue.add(pod, T)
        queued = queue.pop(T)
        queue.move([NODE_ADD, SLICE_ADD], T)
        queue.requeue(queued, pod, ["Fit"], ["Devices"], T)
        assert queued.place is Place.ACTIVE

    def test_update_of_the_pod_itself_is_replayed(self):
        """A label change while the Pod is being decided wakes it when the label's plugin rejected it."""
        queue = make_queue()
        pod, new = make_pod("a"), make_pod("a", version="2", labels={"x": "y"})
        queue.add(pod, T)
        queued = queue.pop(T)
        queue.update(pod, new, T)
        queue.requeue(queued, new, ["Labels"], [], T)
        assert queued.place is Place.BACKOFF
        assert queued.pod is new

    def test_any_event_is_replayed_for_an_open_plugin(self):
        """Once a plugin without registrations has rejected a Pod, events nobody asked for are kept too."""
        queue = make_queue()
        pod = make_pod("a")
        reject(queue, pod, T, "Extender")
        queued = queue.pop(T)
        queue.move([ClusterEvent(Resource.CSI_NODE, Action.ADD)], T)
        queue.requeue(queued, pod, ["Extender"], [], T)
        assert queued.place is Place.BACKOFF

    def test_update_of_another_pod_is_not(self):
        """The update of one Pod in flight does not wake another one."""
        queue = make_queue()
        pods = [make_pod(name) for name in "ab"]
        for pod in pods:
            queue.add(pod, T)
        one, two = queue.pop(T), queue.pop(T)
        queue.update(pods[1], make_pod("b", version="2", labels={"x": "y"}), T)
        queue.requeue(one, pods[0], ["Labels"], [], T)
        assert one.place is Place.UNSCHEDULABLE
        queue.done(two.uid)
        queue.check()

    def test_done_forgets_pod_and_events(self):
        """When the last attempt ends nothing is left, and done twice is harmless."""
        queue = make_queue()
        queue.add(make_pod("a"), T)
        queue.pop(T)
        queue.move([NODE_ADD], T)
        queue.done("u-a")
        queue.done("u-a")
        queue.check()
        assert len(queue) == 0
        assert queue.get("u-a") is None

    def test_successor_takes_over_the_name(self):
        """A Pod recreated under its name while the old one is in flight is queued; the old one is dropped."""
        queue = make_queue()
        old, new = make_pod("a", uid="u1"), make_pod("a", uid="u2")
        queue.add(old, T)
        queued = queue.pop(T)
        queue.delete("u1")
        queue.add(new, T)
        assert queue.requeue(queued, old, ["Fit"], [], T) is Place.NOWHERE
        queue.check()
        assert [item["uid"] for item in queue.dump()] == ["u2"]

    def test_missed_deletion_is_noticed(self):
        """A second uid under one name means that the first is gone."""
        queue = make_queue()
        queue.add(make_pod("a", uid="u1"), T)
        queue.add(make_pod("a", uid="u2"), T)
        queue.check()
        assert [queued["uid"] for queued in queue.dump()] == ["u2"]


class TestUpdateAndDelete:
    def test_same_version_is_ignored(self):
        """A repeated resourceVersion (a resync) wakes nothing."""
        queue = make_queue()
        queued = reject(queue, make_pod("a"), T, "Labels")
        queue.update(queued.pod, make_pod("a", labels={"x": "y"}), T)
        assert queued.place is Place.UNSCHEDULABLE

    def test_own_condition_write_wakes_nothing(self):
        """The scheduler's own status write is a generic update, which no plugin here asked for."""
        queue = make_queue()
        queued = reject(queue, make_pod("a"), T, "Labels", "Fit")
        queue.update(queued.pod, make_pod("a", version="2"), T)
        queue.check()
        assert queued.place is Place.UNSCHEDULABLE
        assert queued.pod.metadata.resourceVersion == "2"

    def test_specific_update_wakes(self):
        """A label change wakes a Pod that the label's plugin rejected."""
        queue = make_queue()
        queued = reject(queue, make_pod("a"), T, "Labels")
        queue.update(queued.pod, make_pod("a", version="2", labels={"x": "y"}), T)
        queue.check()
        assert queued.place is Place.BACKOFF

    def test_unknown_pod_is_added(self):
        """An update of a Pod never seen is an addition."""
        queue = make_queue()
        queue.update(None, make_pod("a"), T)
        assert queue.counts()["active"] == 1

    def test_lost_nomination_is_announced(self):
        """A Pod whose nominated node is cleared lets Pods of at most its priority try again."""
        queue = make_queue()
        low = reject(queue, make_pod("low"), T, "Fit")
        nominated = make_pod("n", priority=3, nominated="node-1")
        queue.add(nominated, T)
        queue.update(nominated, make_pod("n", priority=3, version="2"), T)
        assert low.place is Place.BACKOFF

    @pytest.mark.parametrize("plugins", [None, (), ("Fit",)])
    def test_delete_removes_from_anywhere(self, plugins):
        """A deleted Pod leaves whichever structure it is in."""
        queue = make_queue()
        if plugins is None:
            queue.add(make_pod("a"), T)
        else:
            reject(queue, make_pod("a"), T, *plugins)
        queue.delete("u-a")
        queue.delete("u-a")
        queue.check()
        assert len(queue) == 0
        assert popped(queue) == []


class TestGates:
    def test_gated_pod_is_held_and_released(self):
        """A gated Pod is not tried; eliminating its gates makes it active at once, having had no attempt."""
        queue = make_queue()
        pod = make_pod("a", gates=("g",))
        queue.add(pod, T)
        queue.check()
        assert queue.counts() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 1}
        assert queue.pop(T) is None
        queue.update(pod, make_pod("a", version="2"), T)
        queue.check()
        queued = queue.pop(T)
        assert (queued.attempts, queued.gated) == (1, False)

    def test_other_plugins_events_do_not_release_it(self):
        """Only the gating plugin's events and wildcards are looked at for a gated Pod."""
        asked = []

        def gate(pod, first):
            asked.append(first)
            return unschedulable("no").by("SchedulingGates")

        queue = make_queue(pre_enqueue=gate)
        queue.add(make_pod("a"), T)
        queue.move([NODE_ADD, SLICE_ADD], T)
        assert asked == [None]
        queue.move([ClusterEvent(Resource.ANY, Action.ALL, special="Special")], T)
        queue.check()
        assert asked == [None, "SchedulingGates"]
        assert queue.counts()["gated"] == 1

    def test_own_update_that_the_gate_did_not_ask_for(self):
        """A change that only another rejecting plugin asked for does not make a gated Pod ask its gate."""
        asked = []

        def gate(pod, first):
            asked.append(first)
            return unschedulable("no").by("SchedulingGates") if len(asked) > 1 else None

        queue = make_queue(pre_enqueue=gate)
        queued = reject(queue, make_pod("a"), T, "Labels")
        queue.update(queued.pod, make_pod("a", version="2", labels={"x": "1"}), T)
        assert queued.gated
        queue.update(queued.pod, make_pod("a", version="3", labels={"x": "2"}), T)
        assert len(asked) == 2

    def test_staying_gated_is_not_a_new_arrival(self):
        """A gated Pod that is looked at and stays counts as incoming once."""
        recorder = Recorder()
        queue = make_queue(recorder)
        queue.add(make_pod("a", gates=("g",)), T)
        queue.move([ClusterEvent(Resource.ANY, Action.ALL, special="Special")], T)
        assert recorder.entries == [("unschedulable", "UnscheduledPodAdd")]

    def test_gate_is_asked_again_on_the_way_to_backoff(self):
        """A rejected Pod that an event wakes is gated when pre_enqueue refuses meanwhile."""
        closed = []

        def gate(pod, first):
            return unschedulable("no").by("SchedulingGates") if closed else None

        queue = make_queue(pre_enqueue=gate)
        queued = reject(queue, make_pod("a"), T, "Fit")
        closed.append(True)
        assert queue.move([NODE_ADD], T) == 0
        queue.check()
        assert queued.gating_plugin == "SchedulingGates"
        assert queued.unschedulable_plugins == {"Fit", "SchedulingGates"}

    def test_gate_is_not_asked_when_backoff_ends(self):
        """From back-off to active no plugin is asked again."""
        asked = []
        queue = make_queue(pre_enqueue=lambda pod, first: asked.append(pod.key))
        reject(queue, make_pod("a"), T)
        before = len(asked)
        queue.flush(T + 5)
        assert queue.counts()["active"] == 1
        assert len(asked) == before


class TestFlushAndActivate:
    def test_long_waiting_pod_gets_another_chance(self):
        """After more than five minutes without an event a Pod is tried again, at a 30 second mark."""
        recorder = Recorder()
        queue = make_queue(recorder)
        queued = reject(queue, make_pod("a"), 30.0, "Fit")
        assert queue.next_wakeup(31.0) == 29.0
        assert queue.flush(330.0) == 0
        assert queue.flush(359.0) == 0
        assert queue.flush(360.0) == 1
        assert queued.place is Place.ACTIVE
        assert queued.was_flushed
        assert recorder.entries[-1] == ("active", "UnschedulableTimeout")

    def test_flush_looks_at_a_gate_every_five_minutes_only(self):
        """A Pod that stays gated is not asked at every mark."""
        asked = []

        def gate(pod, first):
            asked.append(pod.key)
            return unschedulable("no").by("SchedulingGates")

        queue = make_queue(pre_enqueue=gate)
        queue.add(make_pod("a"), 0)
        for now in range(0, 1200, 30):
            queue.flush(now)
            queue.check()
        assert len(asked) == 1 + 3

    def test_nothing_waits_for_the_clock(self):
        """Active Pods alone need no wake-up."""
        queue = make_queue()
        queue.add(make_pod("a"), T)
        assert queue.next_wakeup(T) == math.inf

    def test_activate(self):
        """Activating takes Pods out of sleep and both back-offs, whatever is left of it."""
        recorder = Recorder()
        queue = make_queue(recorder)
        reject(queue, make_pod("asleep"), T, "Fit")
        reject(queue, make_pod("broken"), T)
        queue.activate(["u-asleep", "u-broken", "u-unknown"], T)
        queue.check()
        assert queue.counts()["active"] == 2
        assert recorder.entries[-1] == ("active", "ForceActivate")

    def test_activate_in_flight_is_remembered(self):
        """A Pod activated during its attempt retries after back-off when the attempt fails; others do not."""
        queue = make_queue()
        pods = [make_pod(name) for name in "ab"]
        for pod in pods:
            queue.add(pod, T)
        one, two = queue.pop(T), queue.pop(T)
        queue.activate([one.uid], T)
        queue.requeue(one, pods[0], ["Fit"], [], T)
        queue.requeue(two, pods[1], ["Fit"], [], T)
        assert (one.place, two.place) == (Place.BACKOFF, Place.UNSCHEDULABLE)

    def test_an_hour_without_news_costs_few_attempts(self):
        """200 Pods that do not fit are each tried once per five minutes, however often the queue is asked."""
        queue = make_queue()
        for number in range(200):
            queue.add(make_pod(f"p{number}"), 0.0)
        attempts, now = 0, 0.0
        while now < 3600:
            queue.flush(now)
            while (queued := queue.pop(now)) is not None:
                attempts += 1
                queue.requeue(queued, queued.pod, ["Fit"], [], now)
            now += max(1.0, queue.next_wakeup(now))
        assert 200 * 10 <= attempts <= 200 * 12
