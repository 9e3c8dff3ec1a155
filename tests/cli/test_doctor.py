"""dra-scheduler doctor on files and on a live API server: formats, exit codes, and what it writes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cli.main import kubectl_main, main
from scheduler.embedded.server import EmbeddedServer
from tests.app.objects import gpu_class, node
from tests.explain.clusters import device, held, slice_of

Object = dict[str, Any]


def cluster(*more: Object) -> list[Object]:
    """A node with two devices."""
    return [node("n1"), gpu_class(), slice_of("n1", [device("d0"), device("d1")]), *more]


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """One claim that leaks."""
    file = tmp_path / "dump.json"
    items = [{"kind": "PodList", "apiVersion": "v1", "items": []}, *cluster(held("ghost", "n1", "d0", pod="gone"))]
    file.write_text(json.dumps(items))
    return str(file)


def test_damage_in_a_dump(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Code 2, the finding, its command on a line of its own; the same as kubectl plug-in."""
    assert main(["doctor", "-f", dump]) == 2
    shown = capsys.readouterr().out
    assert "warning ResourceClaim default/ghost  [reserved-for-nobody]" in shown
    assert "\n    kubectl patch resourceclaim ghost -n default --type=merge --subresource=status -p '{" in shown
    assert kubectl_main(["doctor", "-f", dump]) == 2
    assert capsys.readouterr().out == shown


def test_json_and_yaml_say_the_same(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Two spellings of one answer."""
    assert main(["doctor", "-f", dump, "-o", "json"]) == 2
    as_json = json.loads(capsys.readouterr().out)
    assert main(["doctor", "-f", dump, "-o=yaml"]) == 2
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    (finding,) = as_json["diagnosis"]["findings"]
    assert (finding["check"], as_json["outcomes"]) == ("reserved-for-nobody", None)


def test_a_healthy_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Code 0, and what could not be judged."""
    file = tmp_path / "part.yaml"
    file.write_text(yaml.safe_dump_all(cluster()))
    assert main(["doctor", "-f", str(file)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("0 errors, 0 warnings, 0 notes (looked at: ResourceClaim 0, Pod 0, ResourceSlice 1)\n")
    assert "note: no Pod in the input: who uses a claim was not judged" in shown


@pytest.mark.parametrize("content", ["", "Error from server (Forbidden): pods is forbidden"])
def test_an_input_without_any_object(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error message that was saved as a dump is no healthy cluster."""
    file = tmp_path / "dump.yaml"
    file.write_text(content)
    assert main(["doctor", "-f", str(file)]) == 1
    assert "there is no Kubernetes object in it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--fix"], "-f and --fix exclude each other"),
        (["--yes"], "--yes says that --fix may write; give --fix, too"),
        (["--kubeconfig", "x"], "-f and --kubeconfig exclude each other"),
        (["--settle", "soon"], "argument --settle:"),
    ],
)
def test_mistakes_are_one_message(
    dump: str, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Code 1 and a sentence, never a traceback."""
    assert main(["doctor", "-f", dump, *flags]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("content", ["a: [", "\x00", "{", "just words", "- 1\n- 2", "", "kind: Pod\nspec: []"])
def test_broken_files_never_end_in_a_traceback(
    tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not YAML at all, or YAML of something else."""
    file = tmp_path / "broken.yaml"
    file.write_text(content)
    assert main(["doctor", "-f", str(file)]) in (0, 1)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    assert captured.out + captured.err


def test_a_live_cluster_is_repaired_only_with_yes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Plain and --fix write nothing; --fix --yes does, and the next run is content."""
    kubeconfig = tmp_path / "kubeconfig"
    codes: list[int] = []
    revisions: list[int] = []

    async def serve() -> None:
        server = EmbeddedServer(controllers=False)
        await server.start()
        try:
            server.load(cluster(held("ghost", "n1", "d0", pod="gone"), held("idle", "n1", "d1")))
            server.write_kubeconfig(kubeconfig)
            for flags in ([], ["--fix"], ["--fix", "--yes"], []):
                argv = ["doctor", "--kubeconfig", str(kubeconfig), "--settle=0s", *flags]
                codes.append(await asyncio.to_thread(main, argv))
                revisions.append(server.store.revision)
        finally:
            await server.stop()

    asyncio.run(serve())
    assert codes == [2, 2, 0, 0]
    plain, tried, written, again = revisions
    assert (tried, written, again) == (plain, plain + 2, plain + 2)
    shown = capsys.readouterr().out
    assert "would be done: clear the allocation of claim default/ghost" in shown
    assert "\ndone: clear the allocation of claim default/idle" in shown
