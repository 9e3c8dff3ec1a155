"""The namespace of commands that name none is the one of the kubeconfig's current context."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from scheduler.edge import contexts
from scheduler.edge.contexts import current_namespace


def write(path: Path, current: str = "b") -> str:
    """A kubeconfig with two contexts, of which only ``b`` has a namespace."""
    parts = [("a", {"cluster": "c", "user": "u"}), ("b", {"cluster": "c", "user": "u", "namespace": "team-b"})]
    path.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": current, "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://host"}}],
        "contexts": [{"name": name, "context": context} for name, context in parts],
    }))  # fmt: skip
    return str(path)


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))


def test_the_current_context_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the file that is given, or of $KUBECONFIG; a context without one means default."""
    file = write(tmp_path / "config")
    assert current_namespace(file) == "team-b"
    monkeypatch.setenv("KUBECONFIG", file)
    assert current_namespace() == "team-b"
    assert current_namespace(write(tmp_path / "other", "a")) == "default"


@pytest.mark.parametrize("content", ["", "{", "kind: Config", "- 1"])
def test_a_kubeconfig_that_cannot_be_read_means_default(tmp_path: Path, content: str) -> None:
    """What is wrong with it is told when the cluster is reached for."""
    file = tmp_path / "config"
    file.write_text(content)
    assert current_namespace(str(file)) == "default"
    assert current_namespace() == "default"


def test_inside_a_cluster_it_is_the_pods_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a kubeconfig is given."""
    mounted = tmp_path / "namespace"
    mounted.write_text("tools\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr(contexts, "IN_CLUSTER_FILE", mounted)
    assert current_namespace() == "tools"
    assert current_namespace(write(tmp_path / "config")) == "team-b"
