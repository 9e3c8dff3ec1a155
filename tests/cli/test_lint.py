"""dra-scheduler lint on manifests: what cannot be read is an error, and nothing else decides the exit code."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cli.main import main
from scheduler.embedded.server import EmbeddedServer
from tests.app.objects import gpu_class, node, pod, template
from tests.explain.clusters import DRIVER, Object, device, request, slice_of, want

NO_TEMPLATES: Object = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplateList", "items": []}


def cluster(*more: Object) -> list[Object]:
    """A node with two devices."""
    return [node("n1"), gpu_class(), slice_of("n1", [device("a"), device("b")]), *more]


class Folder:
    """Files to lint, and the answer as data."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self._capsys = path, capsys

    def write(self, name: str, *documents: Any) -> str:
        file = self.path / name
        file.write_text(yaml.safe_dump_all(documents))
        return str(file)

    def lint(self, *arguments: str) -> tuple[int, Any]:
        code = main(["lint", *arguments, "-o", "json"])
        shown = self._capsys.readouterr()
        return code, json.loads(shown.out) if code != 1 else shown.err


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Folder:
    """An empty one."""
    return Folder(tmp_path, capsys)


def with_request(**fields: Any) -> Object:
    claim = want(request("r"))
    claim["spec"]["devices"]["requests"] = [{"name": "r", **fields}]
    return claim


def exactly(**fields: Any) -> Object:
    return with_request(exactly={"deviceClassName": "gpu", **fields})


def template_of(claim: Object) -> Object:
    return claim | {"kind": "ResourceClaimTemplate", "spec": {"spec": claim["spec"]}}


BETA: Object = {"apiVersion": "resource.k8s.io/v1beta1"}
REQUEST = "spec.devices.requests[0]"
BAD: dict[str, tuple[Any, str, str, str]] = {
    "a count in words": (exactly(count="two"), "manifest-unreadable", f"{REQUEST}.exactly.count", "kubectl explain"),
    "a count in words in a template": (
        template_of(exactly(count="two")), "manifest-unreadable", f"spec.{REQUEST}.exactly.count", "kubectl explain"),
    "text": ("just words", "manifest-unreadable", "", "as kubectl apply takes them"),
    "an error message": ({"Error from server (Forbidden)": "no"}, "manifest-unreadable", "", "as kubectl apply"),
    "an unknown version": (
        exactly() | {"apiVersion": "resource.k8s.io/v9"}, "manifest-unreadable", "apiVersion", "kubectl explain"),
    "the shape of v1beta1": (
        with_request(deviceClassName="gpu"), "field-unknown", f"{REQUEST}.deviceClassName", "inside exactly"),
    "the shape of v1": (exactly() | BETA, "field-unknown", f"{REQUEST}.exactly", "in the request itself"),
    "a typing error": (exactly(selectrs=[]), "field-unknown", f"{REQUEST}.exactly.selectrs", "use selectors"),
    "a typing error in an alternative": (
        with_request(firstAvailable=[{"name": "a", "deviceClassName": "gpu", "cuont": 2}]),
        "field-unknown", f"{REQUEST}.firstAvailable[0].cuont", "use count"),
    "a typing error in a template": (
        template_of(exactly(selectrs=[])), "field-unknown", f"spec.{REQUEST}.exactly.selectrs", "use selectors"),
    "a template without its inner spec": (
        template_of(exactly()) | {"spec": exactly()["spec"]}, "field-unknown", "spec.devices", "use one of metadata"),
    "a typing error at the top": (
        {name: value for name, value in exactly().items() if name != "spec"} | {"sepc": {}},
        "field-unknown", "sepc", "use spec"),
    "a typing error in a class": (
        gpu_class("own") | {"spec": {"selectors": gpu_class()["spec"]["selectors"], "extendedResourcName": "x/y"}},
        "field-unknown", "spec.extendedResourcName", "use extendedResourceName"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_manifest_that_cannot_be_read_as_it_is_meant(name: str, folder: Folder) -> None:
    """Check, file and field path, with code 2; which document of the file it is where the object has no name."""
    document, check, path, fix = BAD[name]
    dump = folder.write("dump.yaml", *cluster())
    manifest = folder.write("m.yaml", template("fine"), document)
    code, answer = folder.lint("-f", dump, "-m", manifest)
    (finding,) = answer["findings"]
    assert (code, finding["severity"], finding["check"], finding["path"]) == (2, "error", check, path)
    assert finding["file"] == manifest
    assert fix in finding["fix"]
    assert check == "field-unknown" or finding["what"].startswith("document 2 of the file cannot be used: ")
    assert not any("left out" in caveat for caveat in answer["caveats"])


@pytest.mark.parametrize("text", ["", "---\n", "# to do\n"])
def test_a_manifest_without_any_object(text: str, folder: Folder) -> None:
    """Nothing was looked at: that must not pass."""
    dump = folder.write("dump.yaml", *cluster())
    (folder.path / "m.yaml").write_text(text)
    code, answer = folder.lint("-f", dump, "-m", str(folder.path / "m.yaml"))
    (finding,) = answer["findings"]
    assert (code, finding["check"]) == (2, "manifest-unreadable")
    assert finding["what"] == "cannot be used: the file holds no object"


def test_every_version_and_every_field_is_known(folder: Folder) -> None:
    """Claims of all versions as their API has them."""
    full = exactly(
        selectors=[{"cel": {"expression": "true"}}], allocationMode="ExactCount", count=1, adminAccess=False,
        tolerations=[{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}],
    )  # fmt: skip
    full["spec"]["devices"] |= {
        "constraints": [{"requests": ["r"], "matchAttribute": f"{DRIVER}/model"}],
        "config": [{"requests": ["r"], "opaque": {"driver": DRIVER, "parameters": {"any": {"thing": 1}}}}],
    }
    flat = with_request(**full["spec"]["devices"]["requests"][0]["exactly"]) | BETA
    flat["metadata"] = {"name": "flat"}
    manifest = folder.write(
        "m.yaml", full, flat, full | {"apiVersion": "resource.k8s.io/v1beta2", "metadata": {"name": "second"}}
    )
    code, answer = folder.lint("-f", folder.write("dump.yaml", *cluster()), "-m", manifest)
    assert (code, answer["findings"]) == (0, [])


def test_findings_of_the_cluster_do_not_fail_a_manifest(folder: Folder) -> None:
    """The cluster has a claim that cannot be served; the manifest is sound: code 0, and how many were left out."""
    dump = folder.write("dump.yaml", *cluster(want(request("r", 9), name="old")))
    assert folder.lint("-f", dump)[0] == 2
    code, answer = folder.lint("-f", dump, "-m", folder.write("m.yaml", template("new")))
    assert (code, answer["findings"]) == (0, [])
    assert any(caveat.startswith("1 finding about objects that have nothing to do") for caveat in answer["caveats"])


def test_what_a_manifest_uses_or_breaks_is_told_with_it(folder: Folder) -> None:
    """A Pod whose template in the cluster asks for too much; a class that takes the devices from a claim there is."""
    dump = folder.write("dump.yaml", *cluster(template("big", count=9), want(request("r"), name="old")))
    code, answer = folder.lint("-f", dump, "-m", folder.write("pod.yaml", pod("p", template="big")))
    assert code == 2
    assert {finding["subject"] for finding in answer["findings"]} == {"ResourceClaimTemplate default/big"}
    other = gpu_class() | {"spec": {"selectors": [{"cel": {"expression": 'device.driver == "other"'}}]}}
    code, answer = folder.lint("-f", dump, "-m", folder.write("class.yaml", other))
    told = {(finding["check"], finding["subject"]) for finding in answer["findings"]}
    assert ("class-matches-nothing", "DeviceClass gpu") in told
    assert ("request-matches-nothing", "ResourceClaim default/old") in told


def test_an_object_that_cannot_be_read_is_not_called_missing(folder: Folder) -> None:
    """A Pod names the claim and the template that are in the file, but broken: one finding for each of these."""
    broken = exactly(count="two")
    user = pod("p", template="want")
    user["spec"]["resourceClaims"].append({"name": "second", "resourceClaimName": "want"})
    manifest = folder.write("m.yaml", broken, template_of(broken), user)
    code, answer = folder.lint("-f", folder.write("dump.yaml", *cluster(), NO_TEMPLATES), "-m", manifest)
    assert code == 2
    assert [finding["check"] for finding in answer["findings"]] == ["manifest-unreadable"] * 2


def test_a_template_that_the_manifests_bring_does_not_speak_for_the_cluster(folder: Folder) -> None:
    """The dump does not list templates: whether it has the other one is noted, not judged."""
    manifest = folder.write("m.yaml", template("own"), pod("p", template="own"), pod("q", template="other"))
    code, answer = folder.lint("-f", folder.write("dump.yaml", *cluster()), "-m", manifest)
    assert (code, answer["findings"]) == (0, [])
    assert any("does not list ResourceClaimTemplates" in caveat for caveat in answer["caveats"])
    code, answer = folder.lint("-f", folder.write("dump.yaml", *cluster(), NO_TEMPLATES), "-m", manifest)
    assert [(code, finding["subject"]) for finding in answer["findings"]] == [(2, "Pod default/q")]


def test_a_live_cluster_without_templates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All kinds were listed: a template that a Pod names and that is not there is missing, and nothing is uncertain."""
    kubeconfig = tmp_path / "kubeconfig"

    async def serve() -> int:
        server = EmbeddedServer()
        await server.start()
        try:
            server.load(cluster(pod("p", template="none")))
            server.write_kubeconfig(kubeconfig)
            return await asyncio.to_thread(main, ["lint", "--kubeconfig", str(kubeconfig)])
        finally:
            await server.stop()

    assert asyncio.run(serve()) == 2
    shown = capsys.readouterr().out
    assert "error Pod default/p spec.resourceClaims[0].resourceClaimTemplateName\n" in shown
    assert "1 error, 0 warnings, 0 notes" in shown
    assert "note:" not in shown


@pytest.mark.parametrize("command", ["lint", "inventory"])
@pytest.mark.parametrize("documents", [[node("n1")], [exactly() | {"apiVersion": "resource.k8s.io/v9"}]])
def test_an_input_without_anything_to_judge(
    command: str, documents: list[Object], folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Code 1 and what is missing: a dump of other kinds, or of objects that cannot be read, is no sound cluster."""
    assert main([command, "-f", folder.write("dump.yaml", *documents)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"dra-scheduler {command}: nothing to judge: no ")
    assert "no ResourceClaim" in error
    assert ("left out: ResourceClaim default/want: apiVersion" in error) == (documents[0]["kind"] != "Node")


def test_a_part_of_a_dump_is_enough(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """Slices alone can be counted, classes alone can be looked at; a list that is empty says that there are none."""
    assert main(["inventory", "-f", folder.write("slices.yaml", slice_of("n1", [device("a")]))]) == 0
    assert main(["lint", "-f", folder.write("classes.yaml", gpu_class())]) == 0
    none = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "items": []}
    assert main(["inventory", "-f", folder.write("none.yaml", node("n1"), none)]) == 0
    assert "note: no Node in the input" in capsys.readouterr().out
