"""explain, inventory and lint on files and on a live API server: formats, exit codes, and that nothing is written."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cli.main import kubectl_main, main
from scheduler.embedded.server import EmbeddedServer
from tests.app.objects import claim, gpu_class, gpu_slice, node, pod, template

Object = dict[str, Any]


def cluster() -> list[Object]:
    """Two nodes with a device each; Pod p wants two, Pod q one."""
    return [node("n1"), node("n2"), gpu_class(), gpu_slice("n1", 1), gpu_slice("n2", 1), claim("two", count=2),
            claim("one"), pod("p", claim="two"), pod("q", claim="one")]  # fmt: skip


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """The cluster as kubectl writes a List."""
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump({"kind": "List", "apiVersion": "v1", "items": cluster()}))
    return str(file)


def test_a_waiting_pod_is_explained_in_text(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Why, where and what would help; the exit code says that it waits, and no colours reach a pipe."""
    assert main(["explain", "pod/p", "-f", dump]) == 2
    shown = capsys.readouterr().out
    assert shown.startswith("Pod default/p waits\n  0/2 nodes are available: 2 cannot allocate all claims.")
    assert "2 nodes: n1, n2" in shown
    assert "ask for 1 instead of 2 devices in request gpu of claim default/two: it would go to node n" in shown
    assert "\033" not in shown


def test_json_and_yaml_say_the_same(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Two spellings of one answer."""
    assert main(["explain", "p", "-f", dump, "-o", "json"]) == 2
    as_json = json.loads(capsys.readouterr().out)
    assert main(["explain", "pods/p", "-f", dump, "-o=yaml"]) == 2
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert as_json["nodes"][0]["claims"][0]["requests"][0]["wants"] == "2 of class gpu"


@pytest.mark.parametrize("words", [["pod", "p"], ["Pod/p"], ["po", "p"], ["pods/p"], ["p"]], ids=" ".join)
def test_a_pod_is_named_as_kubectl_names_it(words: list[str], dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one word or two, in any case."""
    assert main(["explain", *words, "-f", dump]) == 2
    assert capsys.readouterr().out.startswith("Pod default/p waits")


def test_help_names_the_namespace_that_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    """That of the kubeconfig, or default for files."""
    with pytest.raises(SystemExit):
        main(["explain", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "its namespace (default: of the kubeconfig's current context; with -f: default)" in shown


def test_a_pod_that_fits_gives_code_0(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Good news has another exit code than bad news."""
    assert main(["explain", "pod/q", "-f", dump]) == 0
    assert "fits: nothing keeps it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["explain", "pod/none"], "pod default/none: not found"),
        (["explain", "pod/p", "-n", "other"], "pod other/p: not found; there is default/p"),
        (["explain", "node/n1"], "node/n1: only Pods can be explained, as pod/NAME"),
        (["explain", "node", "n1"], "node n1: only Pods can be explained, as pod/NAME"),
        (["explain", "pod/p", "q"], "pod/p q: one Pod is explained at a time, as pod/NAME or pod NAME"),
        (["explain", "pod", "pod/p"], "pod pod/p: one Pod is explained at a time, as pod/NAME or pod NAME"),
        (["explain", "pod/"], "the name of a Pod is needed, as pod/NAME"),
        (["explain", "pod/p", "--kubeconfig", "x"], "-f and --kubeconfig exclude each other"),
    ],
)
def test_mistakes_are_one_message(dump: str, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Code 1 and a sentence, never a traceback."""
    assert main([*argv, "-f", dump]) == 1
    assert capsys.readouterr().err == f"dra-scheduler explain: {message}\n"


@pytest.mark.parametrize("content", ["a: [", "\x00", "{", "just words", "- 1\n- 2", "", "kind: Node\nspec: []"])
def test_broken_files_never_end_in_a_traceback(
    tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not YAML at all, or YAML of something else: told, with what is missing."""
    file = tmp_path / "broken.yaml"
    file.write_text(content)
    for command in (["explain", "pod/p"], ["inventory"], ["lint"]):
        assert main([*command, "-f", str(file)]) in (0, 1)
        captured = capsys.readouterr()
        told = captured.out + captured.err
        reasons = ("not YAML or JSON", "no Kubernetes object in it", "in the input")
        assert any(reason in told for reason in reasons)
        assert "Traceback" not in told


def test_missing_kinds_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dump without slices: the answer says what it cannot know."""
    file = tmp_path / "part.json"
    file.write_text(json.dumps([node("n1"), pod("p", claim="two"), claim("two"), gpu_class()]))
    assert main(["explain", "pod/p", "-f", str(file)]) == 2
    assert "note: no ResourceSlice in the input: no node has any device" in capsys.readouterr().out


def test_manifests_before_they_are_applied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A Pod with a template that no controller has seen is judged by the claim the template makes."""
    for number, item in enumerate(
        [node("n1"), gpu_class(), gpu_slice("n1", 1), template("t", 2), pod("p", template="t")]
    ):
        (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump(item))
    assert main(["explain", "pod/p", "-f", str(tmp_path)]) == 2
    assert "request gpu (2 of class gpu): 1 device: 1 would do" in capsys.readouterr().out


def test_inventory_and_lint_on_files(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Both answer in text and JSON; lint's exit code tells that it found something."""
    assert main(["inventory", "-f", dump, "--by", "pool"]) == 0
    assert "gpu.example.com" in capsys.readouterr().out
    assert main(["inventory", "-f", dump, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["lines"][0]["total"] == 2
    assert main(["lint", "-f", dump]) == 2
    assert "asks for 2 devices; a node has 1 that match at most" in capsys.readouterr().out
    assert main(["lint", "-f", dump, "-o", "json"]) == 2
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["check"], finding["severity"]) == ("count-too-large", "error")


def test_a_live_cluster_is_only_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same answer from LISTs as from files, and no request to the server writes."""
    kubeconfig = tmp_path / "kubeconfig"
    answers: dict[str, int] = {}

    async def serve() -> str:
        server = EmbeddedServer()
        await server.start()
        try:
            server.load(cluster())
            server.write_kubeconfig(kubeconfig)
            arguments = ["--kubeconfig", str(kubeconfig)]
            for command in (["explain", "pod/p"], ["inventory"], ["lint"]):
                answers[command[0]] = await asyncio.to_thread(main, [*command, *arguments])
            assert len(server.audit) > 20
            assert server.audit.writes() == []
        finally:
            await server.stop()
        return capsys.readouterr().out

    shown = asyncio.run(serve())
    assert answers == {"explain": 2, "inventory": 0, "lint": 2}
    assert "0/2 nodes are available: 2 cannot allocate all claims." in shown
    assert "note:" not in shown


def test_a_server_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unreachable cluster is a message and code 1."""
    kubeconfig = tmp_path / "kubeconfig"
    server = {"cluster": {"server": "http://127.0.0.1:9"}, "name": "c"}
    context = {"context": {"cluster": "c", "user": "u"}, "name": "x"}
    kubeconfig.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "x", "clusters": [server], "contexts": [context],
        "users": [{"name": "u", "user": {}}],
    }))  # fmt: skip
    assert main(["inventory", "--kubeconfig", str(kubeconfig)]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_lint_names_the_file_and_looks_at_manifests(
    dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A manifest is looked at as if it were applied: with the cluster's devices, told by its file, and alone."""
    manifest = tmp_path / "train.yaml"
    manifest.write_text(yaml.safe_dump(template("train", count=9)))
    assert main(["lint", "-f", dump, "--manifest", str(manifest), "-o", "json"]) == 2
    found = json.loads(capsys.readouterr().out)["findings"]
    told = {(finding["check"], finding["subject"], finding["file"]) for finding in found}
    assert ("count-too-large", "ResourceClaimTemplate default/train", str(manifest)) in told
    assert not any(file == dump for _, _, file in told)
    assert main(["lint", "-f", dump, "-m", str(manifest)]) == 2
    assert f"in {manifest}" in capsys.readouterr().out


def test_lint_tells_what_the_server_dropped_of_a_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The stored class lacks what the manifest says; nothing else is taken for a loss."""
    stored, written = gpu_class(), gpu_class()
    written["spec"]["extendedResourceName"] = "example.com/gpu"
    dump, manifest = tmp_path / "dump.yaml", tmp_path / "class.yaml"
    items = [node("n1"), gpu_slice("n1", 1), stored]
    dump.write_text(yaml.safe_dump({"kind": "List", "apiVersion": "v1", "items": items}))
    manifest.write_text(yaml.safe_dump(written))
    assert main(["lint", "-f", str(dump), "-m", str(manifest), "-o", "json"]) == 2
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["check"], finding["path"], finding["file"]) == (
        "field-dropped",
        "spec.extendedResourceName",
        str(manifest),
    )


@pytest.mark.parametrize("command", [["explain", "pod/p"], ["lint"], ["inventory"]])
def test_kubectl_dra_says_the_same(command: list[str], dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The plug-in of kubectl is the same command: same code, same output."""
    code = main([*command, "-f", dump])
    shown = capsys.readouterr().out
    assert kubectl_main([*command, "-f", dump]) == code
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("command", [["explain", "pod/p"], ["lint"], ["inventory"]])
def test_colours_on_a_terminal_only(
    command: list[str], dump: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal some words are painted, and without the paint the text is the same; NO_COLOR turns it off."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    main([*command, "-f", dump])
    without = capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    main([*command, "-f", dump])
    painted = capsys.readouterr().out
    assert "\033[" not in without
    assert "\033[" in painted
    assert re.sub(r"\033\[\d*m", "", painted) == without
    monkeypatch.setenv("NO_COLOR", "1")
    main([*command, "-f", dump])
    assert capsys.readouterr().out == without


def test_extenders_that_were_not_asked_are_named(dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They might refuse what fits here."""
    config = tmp_path / "config.yaml"
    extender = {"urlPrefix": "http://127.0.0.1:1/x", "filterVerb": "filter"}
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config.write_text(yaml.safe_dump({**head, "extenders": [extender]}))
    main(["explain", "pod/q", "-f", dump, "--config", str(config)])
    assert "note: extenders of the configuration were not asked: http://127.0.0.1:1/x" in capsys.readouterr().out
