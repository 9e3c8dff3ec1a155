"""``whatif`` as a user calls it: flags, files, formats, exit codes, a live cluster that is only read, broken input."""

from __future__ import annotations

import asyncio
import io
import json
import random
import string
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cli.main import kubectl_main, main
from scheduler.cli.whatif import Bar
from scheduler.embedded.server import EmbeddedServer
from tests.app.objects import claim, gpu_class, gpu_slice, node, pod, template

Object = dict[str, Any]


def cluster() -> list[Object]:
    """Two nodes with a device each; Pod w waits for two."""
    return [node("n1"), node("n2"), gpu_class(), gpu_slice("n1", 1), gpu_slice("n2", 1), template("one"),
            claim("two", count=2), pod("w", claim="two")]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``dump.yaml`` of the cluster and manifests beside it."""
    (tmp_path / "dump.yaml").write_text(yaml.safe_dump({"kind": "List", "apiVersion": "v1", "items": cluster()}))
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod("p", template="one")))
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"pool": "n1"}, "taint": {"key": "k", "effect": "NoSchedule"}},
    }
    (tmp_path / "rule.yaml").write_text(yaml.safe_dump(rule))
    (tmp_path / "new.yaml").write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    return tmp_path


def asked(folder: Path, *flags: str) -> tuple[int, list[str]]:
    """Exit code and arguments of a call on the dump."""
    argv = ["whatif", "-f", str(folder / "dump.yaml"), *flags]
    return main(argv), argv


def test_text_says_what_changes_and_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before, after, the devices, how the node won, and the sums; no colours reach a pipe, no bar is drawn."""
    assert asked(folder, "--add", f"{folder}/pod.yaml,count=3")[0] == 2
    shown = capsys.readouterr()
    assert "added pod default/p-1\n  is: on node n1 with p-1-gpu: gpu.example.com/n1/gpu-0\n" in shown.out
    assert "    scores " in shown.out
    assert "added pod default/p-3\n  is: waits: 0/2 nodes are available: 2 cannot allocate all claims." in shown.out
    assert "2 Pods placed, 2 waiting (without the edits: 0 and 1); 0 as they would be anyway" in shown.out
    assert "\033" not in shown.out
    assert shown.err == ""


def test_good_news_has_code_0(folder: Path) -> None:
    """Everybody who came has a node."""
    assert asked(folder, "--add", f"{folder}/pod.yaml")[0] == 0


def test_a_manifest_without_scheduler_name_has_code_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody here would place it; with --serve behind it, it is placed."""
    plain = pod("p", template="one")
    del plain["spec"]["schedulerName"]
    (folder / "plain.yaml").write_text(yaml.safe_dump(plain))
    assert asked(folder, "--add", f"{folder}/plain.yaml")[0] == 2
    assert "--serve default-scheduler after --add" in capsys.readouterr().out
    assert asked(folder, "--add", f"{folder}/plain.yaml", "--serve", "default-scheduler")[0] == 0


def test_json_and_yaml_say_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two spellings of one answer, by either name of the command."""
    argv = asked(folder, "--add", f"{folder}/pod.yaml", "-o", "json")[1]
    as_json = json.loads(capsys.readouterr().out)
    assert kubectl_main([*argv[:-2], "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    change, other = as_json["changes"]
    assert (other["pod"], other["change"]) == ("default/w", "another reason")
    assert (change["pod"], change["change"], change["after"]["node"]) == ("default/p", "added", "n1")
    assert as_json["stable"] is True


FLAGS: dict[str, list[str]] = {
    "--add={f}/pod.yaml,count=2": ["2 Pods"],
    "--apply={f}/rule.yaml": ["rule.yaml applied"],
    "--delete=pod/w": ["Pod default/w deleted"],
    "--delete=claim/default/two": ["ResourceClaim default/two deleted"],
    "--add-nodes=n1,count=2": ["2 nodes like n1 added (n3, n4), with 2 slices"],
    "--drain=n1": ["node n1 drained: 0 Pods to go, 0 to stay"],
    "--cordon=n1": ["node n1 takes no new Pods"],
    "--uncordon=n1": ["node n1 takes Pods again"],
    "--taint-node=n1=k=v:NoSchedule": ["node n1 tainted k=v:NoSchedule"],
    "--taint-device=gpu.example.com/n1/gpu-0=k:NoExecute": ["device gpu.example.com/n1/gpu-0 tainted k:NoExecute"],
    "--weight=NodeAffinity=7": ["score plugin NodeAffinity weighs 7"],
    "--weight=dra-scheduler:NodeAffinity=0": ["score plugin NodeAffinity weighs 0 in profile dra-scheduler"],
    "--new-config={f}/new.yaml": ["configuration"],
    "--serve=default-scheduler=dra-scheduler": ["of default-scheduler are served by profile dra-scheduler: 0"],
}


@pytest.mark.parametrize("flag", FLAGS)
def test_every_edit_has_a_flag(flag: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer repeats what was understood."""
    assert asked(folder, flag.format(f=folder), "-o", "json")[0] in (0, 2)
    edits = json.loads(capsys.readouterr().out)["edits"]
    assert len(edits) == 1
    assert all(words in edits[0] for words in FLAGS[flag])


def test_flags_and_files_of_edits_are_carried_out_in_the_order_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files in a list of edits are found beside it; flags before and after it keep their turn."""
    listed = [{"add": {"file": "pod.yaml"}}, {"cordon": {"node": "n1"}}]
    (folder / "edits.yaml").write_text(yaml.safe_dump(listed))
    asked(folder, "--cordon=n2", "--edits", f"{folder}/edits.yaml", "--uncordon=n2", "-o", "json")
    answer = json.loads(capsys.readouterr().out)
    assert [edit.split()[-3:] for edit in answer["edits"]] == [
        ["no", "new", "Pods"],
        ["applied:", "1", "Pod"],
        ["no", "new", "Pods"],
        ["takes", "Pods", "again"],
    ]
    assert answer["changes"][0]["after"]["node"] == "n2"
    (folder / "edits.yaml").write_text(yaml.safe_dump({"edits": listed}))
    asked(folder, "--edits", f"{folder}/edits.yaml", "-o", "json")
    assert len(json.loads(capsys.readouterr().out)["edits"]) == 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--add", "{f}/pod.yaml,count=x"], "count 'x' is not a number"),
        (["--add", "{f}/pod.yaml,times=2"], "unknown option 'times=2'; only count=N is known"),
        (["--add", "{f}/nowhere.yaml"], "edit 1 (add): add.file: {f}/nowhere.yaml: No such file or directory"),
        (["--delete", "w"], "KIND/NAME or KIND/NAMESPACE/NAME is needed"),
        (["--delete", "pod/x"], "edit 1 (delete): Pod: 'default/x' does not exist; there are default/w"),
        (["--delete", "pod/w", "-n", "team"], "'team/w' does not exist; there is default/w"),
        (["--drain", "n1", "--drain", "n9"], "edit 2 (drain): node: 'n9' does not exist"),
        (["--taint-node", "n1:NoSchedule"], "NODE=KEY[=VALUE]:EFFECT is needed"),
        (["--taint-node", "n1=k:Never"], "edit 1 (taintNode): taintNode.effect: 'Never' is not one of"),
        (["--weight", "NodeAffinity"], "PLUGIN=N is needed"),
        (["--edits", "{f}/nowhere.yaml"], "No such file or directory"),
        (["--edits", "{f}/pod.yaml"], "pod.yaml: edits: a list of edits is needed"),
        (["--new-config", "{f}/pod.yaml"], "edit 1 (config): "),
        (["--kubeconfig", "x"], "-f and --kubeconfig exclude each other"),
        (["pod/p"], "does not take any arguments"),
    ],
)
def test_mistakes_end_with_code_1_and_a_sentence(
    flags: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The position of the edit and its field, never a traceback."""
    assert asked(folder, *(flag.format(f=folder) for flag in flags))[0] == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("dra-scheduler whatif: ")
    assert said.format(f=folder) in shown.err
    assert shown.out == ""


def test_a_live_cluster_is_only_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same answer from LISTs as from the dump, with every kind of edit; the server saw nothing but GETs."""
    kubeconfig = folder / "kubeconfig"
    flags = ["--until-stable", "-o", "json", f"--add={folder}/pod.yaml,count=3", "--add-nodes=n1", "--drain=n2",
             f"--apply={folder}/rule.yaml", "--delete=pod/w", "--weight=NodeAffinity=3"]  # fmt: skip
    asked(folder, *flags)
    from_file = json.loads(capsys.readouterr().out)

    async def serve() -> None:
        server = EmbeddedServer()
        await server.start()
        try:
            server.load(cluster())
            server.write_kubeconfig(kubeconfig)
            before = len(server.audit)
            await asyncio.to_thread(main, ["whatif", "--kubeconfig", str(kubeconfig), *flags])
            assert len(server.audit) - before > 15
            assert server.audit.writes() == []
        finally:
            await server.stop()

    asyncio.run(serve())
    live = json.loads(capsys.readouterr().out)
    assert live["caveats"] == []
    assert {**live, "caveats": from_file["caveats"]} == from_file


@pytest.mark.parametrize("kind", ["Node", "Pod", "ResourceSlice", "ResourceClaim", "DeviceClass"])
def test_a_dump_without_a_kind_is_judged_as_far_as_it_goes(
    kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer names the missing kind and what cannot be judged without it."""
    left = [item for item in cluster() if item["kind"] != kind]
    (folder / "dump.yaml").write_text(yaml.safe_dump_all(left))
    assert asked(folder, "--add", f"{folder}/pod.yaml", "--until-stable", "-o", "json")[0] in (0, 2)
    caveats = json.loads(capsys.readouterr().out)["caveats"]
    assert [text for text in caveats if text.startswith(f"no {kind} in the input: ")]


def test_broken_objects_are_left_out_and_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rest is judged all the same."""
    broken = [{**node("n3"), "status": {"allocatable": 3}}, {**gpu_slice("n1", 1), "spec": []}, "text", {"a": 1}]
    (folder / "dump.yaml").write_text(yaml.safe_dump_all([*cluster()[:3], *broken, *cluster()[3:]]))
    assert asked(folder, "--add", f"{folder}/pod.yaml", "-o", "json")[0] == 0
    caveats = json.loads(capsys.readouterr().out)["caveats"]
    assert sum(text.startswith("left out: ") for text in caveats) == 4
    assert any("Node n3: $.status.allocatable" in text for text in caveats)


def _mangled(text: str, rng: random.Random) -> str:
    """One accident that happens to files: cut off, a line lost, twice, or moved, a letter changed, a value replaced."""
    lines = text.splitlines()
    place = rng.randrange(len(lines))
    accident = rng.randrange(6)
    if accident == 0:
        return text[: rng.randrange(len(text))]
    if accident == 1:
        del lines[place]
    elif accident == 2:
        lines.insert(place, lines[place])
    elif accident == 3:
        lines.insert(rng.randrange(len(lines)), lines.pop(place))
    elif accident == 4:
        line = lines[place]
        at = rng.randrange(len(line)) if line else 0
        lines[place] = line[:at] + rng.choice(string.printable[:94]) + line[at + 1 :]
    else:
        head, colon, _ = lines[place].partition(":")
        lines[place] = f"{head}{colon} {rng.choice(['null', '[]', '{}', '3', '-1', 'x', '1e99', 'true'])}"
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(8))
def test_mangled_files_never_end_in_a_traceback(seed: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Dump, manifest and edits, each with accidents: an answer with caveats, or one sentence and code 1."""
    rng = random.Random(seed)
    edits = [{"add": {"file": "pod.yaml", "count": 2}}, {"addNodes": {"like": "n1"}}, {"drain": {"node": "n2"}}]
    (folder / "edits.yaml").write_text(yaml.safe_dump(edits))
    texts = {name: (folder / name).read_text() for name in ("dump.yaml", "pod.yaml", "edits.yaml")}
    for _ in range(12):
        name = rng.choice(list(texts))
        for other, text in texts.items():
            (folder / other).write_text(_mangled(text, rng) if other == name else text)
        code = asked(folder, "--edits", f"{folder}/edits.yaml", "--until-stable")[0]
        shown = capsys.readouterr()
        assert code in (0, 1, 2)
        assert (code == 1) == bool(shown.err), shown.err
        assert "Traceback" not in shown.err


def test_the_bar_appears_late_and_leaves_nothing() -> None:
    """Short runs draw nothing; long ones at most ten times a second, and the line is cleared at the end."""
    times = iter([0.0, 0.5, 2.0, 2.05, 2.2])
    out = io.StringIO()
    bar = Bar(lambda: next(times), out)
    bar.tell("with the edits", 10, 90)
    assert out.getvalue() == ""
    bar.tell("with the edits", 50, 50)
    bar.tell("with the edits", 51, 49)
    assert out.getvalue() == "\r[###############...............] 50 attempts, 50 Pods left, with the edits\033[K"
    bar.tell("with the edits", 100, 0)
    bar.clear()
    assert out.getvalue().endswith("with the edits\033[K\r\033[K")
    quiet = io.StringIO()
    Bar(lambda: 0.0, quiet).clear()
    assert quiet.getvalue() == ""
