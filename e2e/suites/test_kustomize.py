"""What kustomize makes of the shipped folders, with the kubectl that is built beside the control plane."""

from __future__ import annotations

import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from e2e.controlplane import build
from e2e.controlplane.fixtures import require_binaries

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
KUBERNETES = "1.37"


@pytest.mark.parametrize("folder", ["base", "overlays/kind", "overlays/gangs", "overlays/namespaced"])
def test_kustomize_renders(folder: str) -> None:
    """`kubectl kustomize` accepts the folder, and what it prints fits the schemas and hangs together."""
    require_binaries()
    kubectl = build.control_plane_binaries() / "kubectl"
    done = subprocess.run(
        [str(kubectl), "kustomize", str(MANIFESTS / folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    for document in rendered:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    by_kind = {document["kind"]: document for document in rendered}
    pod = by_kind["Deployment"]["spec"]["template"]["spec"]
    config_volume = next(volume for volume in pod["volumes"] if volume["name"] == "config")
    assert config_volume["configMap"]["name"] == by_kind["ConfigMap"]["metadata"]["name"]
    assert pod["containers"][0]["image"] == "dra-scheduler:0.1.0"
    labels = by_kind["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    for kind in ("Service", "PodDisruptionBudget"):
        selector = by_kind[kind]["spec"]["selector"]
        assert selector.get("matchLabels", selector).items() <= labels


@pytest.mark.parametrize("folder", ["guard", "overlays/guard-warn", "overlays/guard-cert-manager"])
def test_kustomize_renders_the_guard(folder: str) -> None:
    """The guard's folders: schemas hold, and the Service finds the Pods."""
    require_binaries()
    kubectl = build.control_plane_binaries() / "kubectl"
    done = subprocess.run(
        [str(kubectl), "kustomize", str(MANIFESTS / folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    rendered = [item for item in yaml.safe_load_all(done.stdout) if "cert-manager.io" not in item["apiVersion"]]
    for document in rendered:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    by_kind = {document["kind"]: document for document in rendered}
    template = by_kind["Deployment"]["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == "dra-scheduler:0.1.0"
    assert by_kind["Service"]["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    first, second = (
        webhook["namespaceSelector"]["matchExpressions"][0]
        for webhook in by_kind["ValidatingWebhookConfiguration"]["webhooks"]
    )
    default = second if folder.endswith("warn") else first
    assert (default["operator"], "off" in default["values"]) == ("NotIn", True)
