"""What commands share: lines that cannot be forged, and notes about what the input lacks."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cli.main import main
from scheduler.cli.sources import namespace_of, painter, printable, say
from tests.app.objects import claim, gpu_class, gpu_slice, node, pod, template

Object = dict[str, Any]
FORGED = "A100\x1b[31m\nNode default/fake fits\u202eevil\u2028"
SPELLED = "A100\\x1b[31m\\nNode default/fake fits\\u202eevil\\u2028"
COMMANDS = (["explain", "pod/p"], ["lint"], ["inventory", "--by", "device"], ["inventory"], ["whatif"], ["doctor"])


def written(folder: Path, *items: Any) -> str:
    """The file of a List."""
    file = folder / "dump.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    return str(file)


def test_control_characters_are_spelled_out() -> None:
    """Escape sequences, line ends and marks of writing direction; letters of any language and their joiners stay."""
    assert printable(FORGED) == SPELLED
    assert printable("\x9b\x7f\ud800\t") == "\\x9b\\x7f\\ud800\\t"
    for name in ("Jürgen", "نام\u200cها", "ราม", "山田\u3000太郎", "👩\u200d💻", "back\\slash"):
        assert printable(name) == name


def test_only_our_own_colours_reach_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data inside and beside a coloured word is spelled out, the colour is not."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    say(painter()("bad", FORGED) + FORGED)
    assert capsys.readouterr().out == f"\033[31m{SPELLED}\033[0m{SPELLED}\n"


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_what_a_device_forges(
    command: list[str], terminal: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """An attribute, a taint, a driver and a Pod's name that would move the cursor or add a line of their own."""
    slices, wanted, lost = gpu_slice("n1", 1), claim("want"), claim("lost")
    device = slices["spec"]["devices"][0]
    device["attributes"] = {"model": {"string": FORGED}}
    device["taints"] = [{"key": "k", "value": FORGED, "effect": "NoSchedule"}]
    selector = 'device.attributes["gpu.example.com"].model == "H100"'
    wanted["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": selector}}]
    results = [{"request": "gpu", "driver": FORGED, "pool": "n1", "device": "x"}]
    lost["status"] = {"allocation": {"devices": {"results": results}}}
    lost["status"]["reservedFor"] = [{"resource": "pods", "name": FORGED, "uid": "gone"}]
    forger = pod("f", claim="want")
    forger["metadata"]["name"] = FORGED
    file = written(tmp_path, node("n1"), gpu_class(), slices, wanted, lost, pod("p", claim="want"), forger)
    if terminal:
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    main([*command, "-f", file])
    shown = capsys.readouterr().out
    for style in ("0", "1", "2", "31", "32", "36"):
        shown = shown.replace(f"\033[{style}m", "") if terminal else shown
    assert shown.replace("\n", "").isprintable()
    assert not any(line.startswith("Node default/fake") for line in shown.splitlines())


def test_errors_are_spelled_out_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They quote names."""
    file = written(tmp_path, node("n1"), pod("p") | {"metadata": {"namespace": FORGED, "name": "p"}})
    assert main(["explain", "pod/p", "-f", file]) == 1
    assert f"there is {SPELLED}/p" in capsys.readouterr().err.replace("\n", "\\n")
    assert "\x1b" not in capsys.readouterr().err


def test_the_namespace_of_the_kubeconfig_is_meant(tmp_path: Path) -> None:
    """Of a cluster's Pod; -n is stronger, and files mean default."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://host"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}}],
    }))  # fmt: skip
    live, files = {"files": [], "kubeconfig": str(kubeconfig)}, {"files": ["x"], "kubeconfig": ""}
    assert namespace_of(Namespace(namespace="", **live)) == "team"
    assert namespace_of(Namespace(namespace="other", **live)) == "other"
    assert namespace_of(Namespace(namespace="", **files)) == "default"


def notes(command: list[str], file: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The kinds that are said to be missing, joined."""
    main([*command, "-f", file])
    lines = capsys.readouterr().out.splitlines()
    return " ".join(line.split()[2] for line in lines if line.startswith("note: no "))


def test_explain_names_the_kinds_that_this_pod_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Volumes for a Pod with volumes, taint rules for one with devices, neither for one without."""
    stored = pod("v")
    stored["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster = [node("n1"), gpu_class(), gpu_slice("n1", 1), claim("one"), pod("q", claim="one"), stored, pod("plain")]
    file = written(tmp_path, *cluster)
    assert notes(["explain", "pod/v"], file, capsys) == "PersistentVolumeClaim PersistentVolume StorageClass CSINode"
    assert notes(["explain", "pod/q"], file, capsys) == "DeviceTaintRule"
    assert notes(["explain", "pod/plain"], file, capsys) == ""
    assert notes(["explain", "pod/q", "--feature-gates", "DRADeviceTaintRules=false"], file, capsys) == ""
    rules = {"kind": "DeviceTaintRuleList", "apiVersion": "resource.k8s.io/v1beta2", "items": []}
    assert notes(["explain", "pod/q"], written(tmp_path, *cluster, rules), capsys) == ""


def test_lint_and_inventory_name_only_what_matters_to_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Taint rules for both, volumes for neither."""
    waiting = pod("p", template="t")
    waiting["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    file = written(tmp_path, node("n1"), gpu_class(), gpu_slice("n1", 1), claim("one"), waiting)
    assert notes(["lint"], file, capsys) == "DeviceTaintRule"
    assert notes(["inventory"], file, capsys) == "DeviceTaintRule"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", ""),
        ("Error from server (Forbidden): pods is forbidden\n", "; document 1: an object without kind is no Kubernetes"),
        ("just words\n", "; document 1: str is no Kubernetes object"),
        ("- - kind: Pod\n", "; document 1: list is no Kubernetes object"),
        ("apiVersion: v1\nkind: List\nitems: []\n", ""),
    ],
)
@pytest.mark.parametrize("command", [["explain", "pod/p"], ["lint"], ["inventory"], ["whatif"]], ids=" ".join)
def test_an_input_without_objects_is_an_error(
    command: list[str], content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It must not look like an empty cluster in which all is well."""
    file = tmp_path / "dump.yaml"
    file.write_text(content)
    assert main([*command, "-f", str(file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"dra-scheduler {command[0]}: input: there is no Kubernetes object in it{said}")


def test_a_pod_that_is_not_found_comes_with_what_could_not_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No Pods at all, and documents that are none: both may be why."""
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump_all([node("n1"), ["x"], *[[n] for n in range(8)]]))
    assert main(["explain", "pod/p", "-f", str(file)]) == 1
    error = capsys.readouterr().err
    assert "pod default/p: not found; no Pod in the input: nodes look empty" in error
    assert "; document 2: list is no Kubernetes object; " in error
    assert error.endswith("; and 4 more that cannot be read\n")


def test_a_template_that_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its entry, and with what is called alike here or the same elsewhere; not when no template was read."""
    elsewhere = template("nope")
    elsewhere["metadata"]["namespace"] = "demo"
    rest = [node("n1"), gpu_class(), gpu_slice("n1", 1), pod("p", template="nope")]
    assert main(["explain", "pod/p", "-f", written(tmp_path, *rest, template("nopes"), elsewhere)]) == 2
    text = capsys.readouterr().out
    words = "there is no ResourceClaimTemplate default/nope (entry gpu of spec.resourceClaims)"
    assert f"    {words}; there is default/nopes, demo/nope\n" in text
    assert main(["explain", "pod/p", "-f", written(tmp_path, *rest, template("x")), "-o", "json"]) == 2
    (cause,) = json.loads(capsys.readouterr().out)["because"]
    assert (cause["text"], cause["facts"]["template"]) == (words, "default/nope")
    broken = template("nope")
    broken["spec"]["spec"] = {"devices": 1}
    for items in ([*rest, broken], rest):
        assert main(["explain", "pod/p", "-f", written(tmp_path, *items)]) == 2
        assert "there is no ResourceClaimTemplate" not in capsys.readouterr().out
