"""What a story says to a reader who may not know every name."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.audit.records import ClaimUse, DeviceUse, NodeScore, Record
from scheduler.audit.redacted import redacted
from scheduler.audit.stories import Holding, Story, story_lines

_NAMES = ("replica", "pod", "node", "text", "by", "claim", "device", "request", "freed_by", "freed")
_KEPT = ("id", "kind", "pod_uid", "pod_version", "node_uid", "outcome", "profile", "seed", "version", "config", "uid")
_KEPT_TOO = ("share", "name")


def full(kind: type[Any], /, **given: Any) -> Any:
    """One of ``kind`` whose texts say where they stand."""
    texts = {field.name: f"<{field.name}>" for field in msgspec.structs.fields(kind) if field.type is str}
    return kind(**{**texts, **given})


def story() -> Story:
    use = full(ClaimUse, devices=(full(DeviceUse, consumed={"memory": "1Gi"}),))
    score = full(NodeScore, total=1, plugins={"NodeAffinity": 2})
    record = full(Record, time=1.0, outcome="bound", kind="decision", claims=(use,), scores=(score,))
    return full(Story, records=[record], holdings=[full(Holding, since=1.0)])


def strings(value: Any, key: str = "") -> Any:
    """(field, text) of every text inside."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from strings(item, name)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item, key)


def test_every_text_that_can_name_something_is_hidden_and_no_other() -> None:
    """A field that is added to a record has to be put on one of the two lists."""
    before = list(strings(msgspec.to_builtins(story())))
    after = list(strings(msgspec.to_builtins(redacted(story(), lambda text: "(hidden)"))))
    assert [field for field, _ in before] == [field for field, _ in after]
    changed = {field for (field, old), (_, new) in zip(before, after, strict=True) if old != new}
    assert changed == set(_NAMES)
    assert {field for field, _ in before} - changed == {*_KEPT, *_KEPT_TOO, "memory"}


def test_what_is_left_can_still_be_told() -> None:
    """The words that the lines are made from are never taken for names, whatever a device is called."""
    lines = story_lines(
        redacted(story(), lambda text: text.replace("bound", "?").replace("pod", "?")), str, lambda s, t: t
    )
    assert any("bound to node" in line for line in lines)
