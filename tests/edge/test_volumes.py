"""Writing volume promises: preconditions, refusals, and answers that get lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.api.kinds import convert
from scheduler.api.storage import (
    BOUND_BY_CONTROLLER_ANNOTATION,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    SELECTED_NODE_ANNOTATION,
)
from scheduler.edge.errors import AnswerLost, Conflict
from scheduler.edge.volumes import VolumeWriter

CLAIM_DATA = {"metadata": {"name": "c", "namespace": "default", "uid": "u", "resourceVersion": "7"}}
REFERENCE = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": "c", "uid": "u"}
VOLUME_DATA = {
    "metadata": {
        "name": "v",
        "uid": "w",
        "resourceVersion": "3",
        "annotations": {BOUND_BY_CONTROLLER_ANNOTATION: "yes", "other": "kept"},
    },
    "spec": {"claimRef": REFERENCE},
}


class Answer:
    def __init__(self, data: Any) -> None:
        self.body = msgspec.json.encode(data)


class Server:
    """Answers calls from a script: an object, or an exception to raise."""

    def __init__(self, *script: Any) -> None:
        self.script, self.calls = list(script), list[tuple[str, str, Any]]()

    async def call(self, method: str, path: str, body: bytes | None = None, content_type: str = "") -> Any:
        self.calls.append((method, path, None if body is None else msgspec.json.decode(body)))
        found = self.script.pop(0)
        if isinstance(found, Exception):
            raise found
        return Answer(found)


def writer(server: Server) -> VolumeWriter:
    async def no_pause(pause_s: float) -> None:
        pass

    return VolumeWriter(server, sleep=no_pause)  # type: ignore[arg-type]  # stands for an ApiClient


def with_node(node: str) -> dict[str, Any]:
    return {"metadata": {**CLAIM_DATA["metadata"], "annotations": {SELECTED_NODE_ANNOTATION: node}}}


async def test_a_promise_names_the_version_it_was_made_for() -> None:
    """One merge patch with uid and resourceVersion; only our own annotation and claimRef are in it."""
    server = Server(VOLUME_DATA)
    volume = convert(PERSISTENT_VOLUME, VOLUME_DATA)
    assert (await writer(server).bind_volume(volume)).name == "v"
    metadata = {"uid": "w", "resourceVersion": "3", "annotations": {BOUND_BY_CONTROLLER_ANNOTATION: "yes"}}
    body = {"metadata": metadata, "spec": {"claimRef": REFERENCE}}
    assert server.calls == [("PATCH", "/api/v1/persistentvolumes/v", body)]


async def test_a_node_is_written_and_taken_out() -> None:
    """No node is a null in the patch, which removes the annotation."""
    server = Server(with_node("n"), CLAIM_DATA)
    claim = convert(PERSISTENT_VOLUME_CLAIM, CLAIM_DATA)
    assert (await writer(server).select_node(claim, "n")).selected_node == "n"
    assert (await writer(server).select_node(claim, "")).selected_node is None
    assert [body["metadata"]["annotations"][SELECTED_NODE_ANNOTATION] for _, _, body in server.calls] == ["n", None]


async def test_a_changed_object_refuses_the_write() -> None:
    """A conflict is no reason to write again: the decision was made on something that is no more."""
    server = Server(Conflict(409, "Conflict", "the object has been modified"))
    with pytest.raises(Conflict, match="the object has been modified"):
        await writer(server).select_node(convert(PERSISTENT_VOLUME_CLAIM, CLAIM_DATA), "n")
    assert len(server.calls) == 1


@pytest.mark.parametrize("script", [[with_node("n")], [CLAIM_DATA, with_node("n")]])
async def test_a_lost_answer_is_read_back(script: list[Any]) -> None:
    """What took effect is found; what did not is written again."""
    server = Server(AnswerLost("broken"), *script)
    stored = await writer(server).select_node(convert(PERSISTENT_VOLUME_CLAIM, CLAIM_DATA), "n")
    assert stored.selected_node == "n"
    assert [method for method, _, _ in server.calls] == ["PATCH", "GET", "PATCH"][: len(server.calls)]


async def test_a_conflict_after_a_lost_answer_may_be_our_own_write() -> None:
    """The late write is recognised by what it wrote."""
    conflict = Conflict(409, "Conflict", "modified")
    server = Server(AnswerLost("broken"), CLAIM_DATA, conflict, with_node("n"))
    stored = await writer(server).select_node(convert(PERSISTENT_VOLUME_CLAIM, CLAIM_DATA), "n")
    assert stored.selected_node == "n"
