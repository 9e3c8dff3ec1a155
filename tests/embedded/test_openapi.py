"""What kubectl reads before it applies something."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import aiohttp
import pytest

from scheduler.embedded.kinds import KINDS
from scheduler.embedded.server import EmbeddedServer

DEMO = Path(__file__).resolve().parents[2] / "manifests/examples/demo"


async def test_every_kind_says_that_the_server_checks_its_fields(server: EmbeddedServer) -> None:
    """Else kubectl asks for schemas that are not here, and applies nothing."""
    told = set()
    async with aiohttp.ClientSession(server.url) as session:
        async with session.get("/openapi/v3?timeout=32s") as answer:
            paths = (await answer.json())["paths"]
        for base in paths.values():
            async with session.get(base["serverRelativeURL"]) as answer:
                document = await answer.json()
            for operations in document["paths"].values():
                patch = operations["patch"]
                assert "fieldValidation" in {parameter["name"] for parameter in patch["parameters"]}
                kind = patch["x-kubernetes-group-version-kind"]
                told.add((kind["group"], kind["version"], kind["kind"]))
        async with session.get("/openapi/v3/apis/nobody.example/v1") as answer:
            assert answer.status == 404
    assert told == {(kind.group, kind.version, kind.kind) for kind in KINDS}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on the PATH")
async def test_kubectl_applies_without_a_word_about_validation(server: EmbeddedServer, tmp_path: Path) -> None:
    """The files of the demo, and again: what is there already is unchanged."""
    kubeconfig = server.write_kubeconfig(tmp_path / "config")

    async def applied() -> tuple[str, str]:
        child = await asyncio.create_subprocess_exec(
            "kubectl", "apply", "-f", str(DEMO), env={"KUBECONFIG": str(kubeconfig), "HOME": str(tmp_path), "PATH": ""},
            executable=shutil.which("kubectl"), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, error = await asyncio.wait_for(child.communicate(), 60)
        return out.decode(), error.decode()

    out, error = await applied()
    assert (error, "pod/too-big created" in out) == ("", True)
    out, error = await applied()
    assert (error, "pod/too-big unchanged" in out) == ("", True)
