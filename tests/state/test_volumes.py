"""VolumeState: assumptions, counts and attached volumes stay what a recount gives, whatever happens."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import POD, Kind, convert
from scheduler.api.storage import (
    CSI_NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    SELECTED_NODE_ANNOTATION,
    STORAGE_CLASS,
    VOLUME_ATTACHMENT,
    PersistentVolumeClaim,
)
from scheduler.errors import InternalError
from scheduler.state.events import Action
from scheduler.state.volumes import VolumeState

NODES, NAMES = ("n0", "n1"), ("a", "b", "c")


def claim(name: str = "a", version: int = 1, **spec: Any) -> PersistentVolumeClaim:
    metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(version)}
    found: PersistentVolumeClaim = convert(PERSISTENT_VOLUME_CLAIM, {"metadata": metadata, "spec": spec})
    return found


def pinned(found: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
    metadata = msgspec.structs.replace(found.metadata, annotations={SELECTED_NODE_ANNOTATION: node})
    return msgspec.structs.replace(found, metadata=metadata)


def pod(name: str, *volumes: dict[str, Any]) -> Pod:
    named = [{"name": f"v{index}", **volume} for index, volume in enumerate(volumes)]
    metadata = {"name": name, "namespace": "default", "uid": name}
    found: Pod = convert(POD, {"metadata": metadata, "spec": {"volumes": named}})
    return found


def of_claim(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name}}


def test_an_assumption_counts_until_the_server_shows_something_newer() -> None:
    """What Reserve assumes hides what was shown; a newer version hides the assumption; old news changes nothing."""
    state, first = VolumeState(), claim()
    state.apply(Change(PERSISTENT_VOLUME_CLAIM, None, first))
    state.claims.assume(first.key, pinned(first, "n0"))
    assert state.claims[first.key].selected_node == "n0"
    assert state.claims.shown(first.key) is first
    assert list(state.claims.assumed()) == [first.key]
    newer = claim(version=3)
    assert [event.action for event in state.apply(Change(PERSISTENT_VOLUME_CLAIM, first, newer))] == [
        Action.UPDATE_OTHER
    ]
    assert state.claims[first.key] is newer
    state.apply(Change(PERSISTENT_VOLUME_CLAIM, newer, claim(version=2)))
    assert state.claims.shown(first.key) is newer


def test_an_assumption_is_taken_back() -> None:
    """restore brings back what the server showed, and forgets the object when it is gone."""
    state, first = VolumeState(), claim()
    state.apply(Change(PERSISTENT_VOLUME_CLAIM, None, first))
    state.claims.assume(first.key, pinned(first, "n0"))
    state.claims.restore(first.key)
    assert state.claims[first.key] is first
    state.claims.assume(first.key, pinned(first, "n0"))
    state.apply(Change(PERSISTENT_VOLUME_CLAIM, first, None))
    state.claims.restore(first.key)
    assert first.key not in state.claims


def test_the_answer_to_our_own_write_is_known_before_the_watch() -> None:
    """It replaces the assumption, and the watch's older news does not undo it."""
    state, first = VolumeState(), claim()
    state.apply(Change(PERSISTENT_VOLUME_CLAIM, None, first))
    state.claims.assume(first.key, pinned(first, "n0"))
    stored = pinned(claim(version=5), "n0")
    (event,) = state.learn_claim(stored)
    assert (event.old, event.new) == (first, stored)
    state.apply(Change(PERSISTENT_VOLUME_CLAIM, first, claim(version=4)))
    assert state.claims[first.key] is stored
    assert state.learn_claim(claim("unknown")) == []


def test_verify_notices_a_lost_count() -> None:
    """A use that is not counted is found."""
    state, user = VolumeState(), pod("p", of_claim("a"))
    state.pod_added(user, "n0")
    assert state.users("default/a", lambda node: True) == 1
    assert state.users("default/a", lambda node: False) == 0
    state.verify([(user, "n0")])
    with pytest.raises(InternalError, match="claim uses"):
        state.verify([])


VOLUMES = st.sampled_from(
    [
        *(of_claim(name) for name in NAMES),
        {"ephemeral": {"volumeClaimTemplate": {}}},
        {"gcePersistentDisk": {"pdName": "d"}},
        {"awsElasticBlockStore": {"volumeID": "vol-1"}},
        {"rbd": {"monitors": ["m1", "m2"], "image": "i"}},
    ]
)
PODS = st.lists(VOLUMES, max_size=3)
CSI = st.sampled_from(
    [
        {"csi": {"driver": "d.io", "volumeHandle": "h1"}},
        {"csi": {"driver": "d.io", "volumeHandle": "h2"}},
        {"awsElasticBlockStore": {"volumeID": "vol-2"}},
    ]
)


class Machine:
    """Applies random changes to a VolumeState and remembers what is there."""

    def __init__(self) -> None:
        self.state, self.version = VolumeState(), 0
        self.known: dict[tuple[str, str], Any] = {}
        self.placed: dict[str, tuple[Pod, str]] = {}

    def put(self, kind: Kind, name: str, body: dict[str, Any] | None) -> None:
        self.version += 1
        metadata = {"name": name, "uid": name, "resourceVersion": str(self.version)}
        if kind.namespaced:
            metadata["namespace"] = "default"
        old = self.known.pop((kind.name, name), None)
        new = None if body is None else convert(kind, {"metadata": metadata, **body})
        if new is not None:
            self.known[kind.name, name] = new
        self.state.apply(Change(kind, old, new))

    def place(self, name: str, volumes: list[dict[str, Any]], node: str) -> None:
        earlier = self.placed.pop(name, None)
        if earlier is not None:
            self.state.pod_removed(*earlier)
        else:
            self.placed[name] = pod(name, *volumes), node
            self.state.pod_added(*self.placed[name])

    def step(self, data: st.DataObject) -> None:
        name, node = data.draw(st.sampled_from(NAMES)), data.draw(st.sampled_from(NODES))
        gone = data.draw(st.integers(0, 3)) == 0
        action = data.draw(st.integers(0, 6))
        if action == 0:
            self.place(f"p{name}", data.draw(PODS), node)
        elif action == 1:
            volume_name = data.draw(st.sampled_from(["", *NAMES]))
            spec = {"volumeName": volume_name, "storageClassName": "class"}
            self.put(PERSISTENT_VOLUME_CLAIM, name, None if gone else {"spec": spec})
        elif action == 2:
            spec = {"storageClassName": data.draw(st.sampled_from(["", "class"])), **data.draw(CSI)}
            self.put(PERSISTENT_VOLUME, name, None if gone else {"spec": spec})
        elif action == 3:
            provisioner = data.draw(st.sampled_from(["d.io", "kubernetes.io/aws-ebs"]))
            self.put(STORAGE_CLASS, "class", None if gone else {"provisioner": provisioner})
        elif action == 4:
            self.put(CSI_NODE, node, None if gone else {"spec": {"drivers": []}})
        elif action == 5:
            source = {"persistentVolumeName": data.draw(st.sampled_from(NAMES))}
            spec = {"attacher": "d.io", "nodeName": node, "source": source}
            self.put(VOLUME_ATTACHMENT, name, None if gone else {"spec": spec})
        else:
            key = f"default/{name}"
            shown = self.state.claims.shown(key)
            if shown is not None:
                self.state.claims.assume(key, pinned(shown, node))
            self.state.claims.restore(f"default/{data.draw(st.sampled_from(NAMES))}")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_kept_equals_a_recount(data: st.DataObject) -> None:
    """After every change and every question, counts, lists and attached volumes are those of a fresh state."""
    machine = Machine()
    for _ in range(data.draw(st.integers(1, 25))):
        machine.step(data)
        for node in NODES:
            machine.state.attached.attached(node)
            if not any(volume.is_ephemeral for user, _ in machine.placed.values() for volume in user.spec.volumes):
                machine.state.attached.used(node)
        machine.state.verify(machine.placed.values())
