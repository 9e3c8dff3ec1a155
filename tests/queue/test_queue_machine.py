"""Random histories: the queue stays consistent and loses no Pod and no wake-up."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler.framework.events import Action, ClusterEvent, Registration, Resource
from scheduler.framework.status import unschedulable
from scheduler.queue.hooks import ProfileHooks
from scheduler.queue.pod import Place
from scheduler.queue.scheduling_queue import SchedulingQueue
from tests.queue.queue_world import NODE_ADD, PROFILE, SLICE_ADD, by_priority, make_pod, registrations

NAMES = st.sampled_from("abcdef")
EVENTS = {
    "Fit": NODE_ADD,
    "Devices": SLICE_ADD,
    "Claims": ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD, None, "c"),
}
PLUGINS = st.sets(st.sampled_from(["Fit", "Devices", "Claims", "Extender"]), max_size=3)


class QueueMachine(RuleBasedStateMachine):
    """Adds, updates, deletes, pops, fails, binds, wakes and lets time pass, beside a model of who must be where.

    The model knows each Pod's uid and whether a wake-up is owed: an event of a rejecting plugin after its pop.
    """

    def __init__(self):
        super().__init__()
        self.now = 1000.0
        self.serial = 0
        self.gates: set[str] = set()
        self.alive: dict[str, object] = {}  # uid -> newest Pod
        self.flight: dict[str, tuple[object, set[str]]] = {}  # uid -> (QueuedPod, plugins whose event it missed)

        def gate(pod, first):
            return unschedulable("no").by("SchedulingGates") if pod.uid in self.gates else None

        claims = Registration(
            Resource.RESOURCE_CLAIM,
            Action.ADD,
            lambda pod, old, new: pod.metadata.labels.get("claim") == new,
            lambda pod: [pod.metadata.labels.get("claim", "")],
            lambda old, new: [new],
        )
        hooks = {PROFILE: ProfileHooks(gate, {**registrations(), "Claims": [claims]})}
        self.queue = SchedulingQueue(hooks, by_priority)

    def version(self):
        """A new resourceVersion."""
        self.serial += 1
        return str(self.serial)

    @rule(name=NAMES, priority=st.integers(0, 2), gated=st.booleans())
    def add(self, name, priority, gated):
        """A Pod appears; a namesake has gone."""
        uid = f"{name}-{self.version()}"
        for other in [uid for uid, pod in self.alive.items() if pod.metadata.name == name]:
            self.delete_uid(other)
        pod = make_pod(name, uid=uid, priority=priority, version=self.version(), labels={"claim": "c"})
        if gated:
            self.gates.add(uid)
        self.alive[uid] = pod
        self.queue.add(pod, self.now)

    def delete_uid(self, uid):
        """The Pod is gone."""
        del self.alive[uid]
        self.queue.delete(uid)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), relabel=st.booleans())
    def update(self, data, relabel):
        """A Pod gets a new version, perhaps another label or priority."""
        uid = data.draw(st.sampled_from(sorted(self.alive)))
        old = self.alive[uid]
        labels = {"claim": "d" if old.metadata.labels["claim"] == "c" else "c"} if relabel else old.metadata.labels
        new = make_pod(
            old.metadata.name, uid=uid, priority=data.draw(st.integers(0, 2)), version=self.version(), labels=labels
        )
        self.alive[uid] = new
        self.queue.update(old, new, self.now)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def delete(self, data):
        """A Pod is deleted."""
        self.delete_uid(data.draw(st.sampled_from(sorted(self.alive))))

    @rule()
    def pop(self):
        """The next Pod is the smallest by the sort key, and only an empty queue gives none."""
        active = [item for uid in self.alive if (item := self.queue.get(uid)) and item.place is Place.ACTIVE]
        backoff = [item for uid in self.alive if (item := self.queue.get(uid)) and item.place is Place.BACKOFF]
        queued = self.queue.pop(self.now)
        if active:
            best = min(by_priority(item.pod, item.timestamp) for item in active)
            assert by_priority(queued.pod, queued.timestamp) == best
        elif backoff:
            assert queued in backoff
        else:
            assert queued is None
        if queued is not None:
            assert not queued.gated
            self.flight[queued.uid] = (queued, set())

    @precondition(lambda self: self.flight)
    @rule(data=st.data(), plugins=PLUGINS, pending=PLUGINS)
    def fail(self, data, plugins, pending):
        """An attempt fails; a Pod that missed an event of a rejecting plugin must not sleep."""
        uid = data.draw(st.sampled_from(sorted(self.flight)))
        queued, missed = self.flight.pop(uid)
        if uid not in self.alive:
            self.queue.done(uid)
            assert self.queue.get(uid) is None
            return
        self.queue.requeue(queued, self.alive[uid], plugins, pending, self.now)
        if uid in self.gates:
            return
        if "Claims" in missed and self.alive[uid].metadata.labels["claim"] != "c":
            missed.discard("Claims")
        if missed & pending:
            assert queued.place is Place.ACTIVE
        elif missed & plugins and "Extender" in pending:
            assert queued.place in (Place.ACTIVE, Place.BACKOFF)  # it hears every event, once events are kept for it
        elif missed & plugins:
            assert queued.place is Place.BACKOFF
        elif not plugins and not pending:
            assert queued.place is Place.ERROR_BACKOFF

    @precondition(lambda self: self.flight)
    @rule(data=st.data())
    def bind(self, data):
        """An attempt succeeds."""
        uid = data.draw(st.sampled_from(sorted(self.flight)))
        del self.flight[uid]
        self.alive.pop(uid, None)
        self.queue.done(uid)
        assert self.queue.get(uid) is None

    @rule(plugin=st.sampled_from(sorted(EVENTS)))
    def event(self, plugin):
        """An event comes: no Pod that it concerns sleeps afterwards, and no other Pod wakes."""
        before = {uid: (item.place, item.rejecting_plugins, item.gated) for uid, item in self.items()}
        self.queue.move([EVENTS[plugin]], self.now)
        for _queued, missed in self.flight.values():
            missed.add(plugin)
        for uid, item in self.items():
            place, rejecting, gated = before[uid]
            wants = plugin in rejecting and (plugin != "Claims" or item.pod.metadata.labels["claim"] == "c")
            wants = (wants or "Extender" in rejecting) and not gated
            if place is Place.UNSCHEDULABLE and wants and uid not in self.gates:
                assert item.place in (Place.ACTIVE, Place.BACKOFF)
            else:
                assert item.place is place

    @precondition(lambda self: self.gates)
    @rule(data=st.data())
    def open_gate(self, data):
        """A gate goes away and its event comes: the Pod does not stay gated."""
        uid = data.draw(st.sampled_from(sorted(self.gates)))
        self.gates.discard(uid)
        if uid in self.alive:
            pod = self.alive[uid]
            event = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, pod, pod)
            self.queue.move([event], self.now)
            assert not self.queue.get(uid).gated

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def close_gate(self, data):
        """A gate appears; the Pod meets it at its next move."""
        self.gates.add(data.draw(st.sampled_from(sorted(self.alive))))

    @rule(data=st.data())
    def activate(self, data):
        """Somebody asks for a Pod to be tried now."""
        uids = data.draw(st.lists(st.sampled_from(sorted(self.alive) or ["none"]), max_size=2))
        self.queue.activate(uids, self.now)

    @rule(seconds=st.sampled_from([0.0, 0.3, 1.0, 5.0, 31.0, 400.0]))
    def tick(self, seconds):
        """Time passes and the queue is flushed: no Pod stays in back-off beyond its second."""
        self.now += seconds
        self.queue.flush(self.now)
        for item in map(self.queue.get, self.alive):
            if item.place in (Place.BACKOFF, Place.ERROR_BACKOFF):
                assert item.backoff_expiration >= int(self.now)
        assert self.queue.next_wakeup(self.now) > 0

    def items(self):
        """Living Pods with their bookkeeping."""
        return [(uid, self.queue.get(uid)) for uid in self.alive]

    @invariant()
    def consistent(self):
        """Structures agree, and every living Pod is somewhere."""
        self.queue.check()
        assert all(self.queue.get(uid) is not None for uid in self.alive)
        counts = self.queue.counts()
        queued = len(self.queue) - len(self.flight)
        assert sum(counts.values()) == queued


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestQueueMachine = QueueMachine.TestCase
