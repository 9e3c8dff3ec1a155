"""Snapshots: what a live cluster does not serve is nothing that the input lacks, and what a dump has to hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from scheduler.api.kinds import Kind
from scheduler.api.versions import ResourceKinds
from scheduler.app import doctor, snapshot
from scheduler.app.service import watched_kinds
from scheduler.app.snapshot import from_items, list_items, readable_kinds
from scheduler.cli.sources import caveats_of
from scheduler.config import load_config
from scheduler.dra.features import Features
from scheduler.edge.errors import NotFound
from scheduler.errors import UserError
from scheduler.explain.pods import template_causes
from scheduler.whatif.objects import KEPT_RAW
from tests.app.objects import gpu_class, gpu_slice, node, pod, template

NOW = 1_800_000_000.0
MISSING = ("DeviceTaintRule", "PodGroup")


class OldServer:
    """LISTs of a server that has no MISSING, in place of a Lister."""

    def __init__(self, client: Any, kind: Kind, selector: Any) -> None:
        self.kind = kind

    async def list_raw(self) -> tuple[list[bytes], str]:
        if self.kind.name in MISSING:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")
        return [], "1"


async def test_kinds_that_the_server_does_not_have_are_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no objects of them, which is known; the same from files is a note."""
    monkeypatch.setattr(snapshot, "Lister", OldServer)
    items, problems = await list_items(None, ResourceKinds(), Features())  # type: ignore[arg-type]
    assert problems == []
    waiting = pod("p", template="t", schedulingGroup={"podGroupName": "g"})
    cluster = [node("n1"), gpu_class(), gpu_slice("n1", 1), template("t"), waiting]

    def missing(*documents: Any) -> list[str]:
        snap = from_items([*documents, *cluster], load_config(""), {}, NOW)
        found = caveats_of(snap, about=snap.pod("default", "p"))
        return [kind for kind in MISSING if any(text.startswith(f"no {kind} in the input") for text in found)]

    assert missing(*items) == []
    assert missing() == list(MISSING)


async def test_a_claim_that_is_nested_deeply_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any tenant may store one; it must not end everybody's commands."""
    deep = b"[" * 3000 + b"]" * 3000
    config = b'[{"opaque":{"driver":"d","parameters":' + deep + b"}}]"
    metadata = b'{"name":"c","namespace":"default","uid":"u"}'
    claim = b'{"metadata":' + metadata + b',"spec":{"devices":{"requests":[],"config":' + config + b"}}}"

    class Deep(OldServer):
        async def list_raw(self) -> tuple[list[bytes], str]:
            return [claim] if self.kind.name == "ResourceClaim" else [], "1"

    monkeypatch.setattr(snapshot, "Lister", Deep)
    monkeypatch.setattr(doctor, "Lister", Deep)
    items, problems = await list_items(None, ResourceKinds(), Features())  # type: ignore[arg-type]
    assert problems == []
    snap = from_items(items, load_config(""), {}, NOW, live=True)
    assert snap.objects.problems == []
    assert "default/c" in snap.state.devices.claims
    objects = await doctor.list_objects(None, ResourceKinds())  # type: ignore[arg-type]
    assert objects.problems == []


def test_a_live_cluster_may_be_empty() -> None:
    """Documents of files may not: an error message that was saved looks like that."""
    assert from_items([], load_config(""), {}, NOW, live=True).objects.empty
    with pytest.raises(UserError, match="there is no Kubernetes object in it"):
        from_items([], load_config(""), {}, NOW)


def test_a_template_that_exists_waits_for_the_claim_controller() -> None:
    """On a live cluster, where no claim is imagined."""
    snap = from_items([template("t"), pod("p", template="t")], load_config(""), {}, NOW, live=True)
    (cause,) = template_causes(snap.pod("default", "p"), snap.objects.templates)
    assert cause.text == (
        "the claim controller has not made the claim of ResourceClaimTemplate default/t yet "
        "(entry gpu of spec.resourceClaims)"
    )


def test_the_dump_that_the_documentation_makes_has_every_kind() -> None:
    """Whatever decisions and lint read."""
    text = (Path(__file__).parents[2] / "docs/explain.md").read_text(encoding="utf-8")
    loop = re.search(r"for kind in (.*?)\ndo ", text, re.DOTALL)
    assert loop is not None
    listed = set(loop[1].replace("\\", " ").split())
    features = Features(generic_workload=True)
    read = {kind.plural for kind in (*watched_kinds(ResourceKinds(), features), *readable_kinds(features).values())}
    lacking = read - {name.partition(".")[0] for name in listed}
    assert lacking == set()
    assert {"resourceclaimtemplates", *(f"{kind.lower()}s" for kind in KEPT_RAW if kind != "PriorityClass")} <= listed
    assert "priorityclasses" in listed
