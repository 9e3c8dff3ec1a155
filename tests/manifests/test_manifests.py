"""Every shipped YAML file: parses, fits the 1.37 schemas, says what it should (rendered in e2e/suites)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from scheduler.config import load_config

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
KUBERNETES = "1.37"
# Files for tools of their own: no Kubernetes API knows these kinds.
_OTHER_KINDS = {"Kustomization", "Cluster", "KubeSchedulerConfiguration"}
# Custom resources of others, whose schemas are not Kubernetes'.
_OTHER_GROUPS = {"cert-manager.io"}
FILES = sorted(MANIFESTS.rglob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    """The objects in one file."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


def objects() -> list[tuple[str, dict[str, Any]]]:
    """(file, object) of every Kubernetes object that is shipped."""
    return [
        (str(path.relative_to(MANIFESTS)), document)
        for path in FILES
        for document in documents(path)
        if document["kind"] not in _OTHER_KINDS and document["apiVersion"].partition("/")[0] not in _OTHER_GROUPS
    ]


def base(kind: str, name: str = "dra-scheduler") -> dict[str, Any]:
    """One object of manifests/base."""
    (found,) = (
        document
        for file, document in objects()
        if file.startswith("base/") and document["kind"] == kind and document["metadata"]["name"] == name
    )
    return found


@pytest.mark.parametrize(
    ("file", "document"), objects(), ids=lambda value: value if isinstance(value, str) else value["metadata"]["name"]
)
def test_every_object_fits_its_schema(file: str, document: dict[str, Any]) -> None:
    """Unknown fields and wrong types would be refused or dropped by a 1.37 API server."""
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_the_configuration_is_one_the_scheduler_reads() -> None:
    """The ConfigMap's file loads without a warning, and its Lease is the one that RBAC allows."""
    config = load_config((MANIFESTS / "base/config.yaml").read_text())
    assert config.warnings == ()
    role = base("Role", "dra-scheduler-leader-election")
    assert config.leader_election.resource_namespace == role["metadata"]["namespace"]
    assert [config.leader_election.resource_name] == role["rules"][1]["resourceNames"]
    args = base("Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--config=/etc/dra-scheduler/config.yaml" in args


def test_the_deployment_starts_with_flags_that_exist() -> None:
    """The container's arguments are a command line that `dra-scheduler run` accepts."""
    from scheduler.cli.options import Parser, go_style
    from scheduler.cli.run_options import add_run_arguments, run_options

    command, *flags = base("Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    parser = Parser(prog="run")
    add_run_arguments(parser)
    options = run_options(
        parser.parse_args(go_style(parser, flags)), lambda path: (MANIFESTS / "base" / Path(path).name).read_text()
    )
    assert command == "run"
    assert (options.secure_port, options.logging_format) == (10259, "json")


def test_probes_ask_the_port_that_is_served() -> None:
    """Liveness and readiness use HTTPS on the named port, which is 10259."""
    container = base("Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {"https": 10259}
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "https", "scheme": "HTTPS"}


def test_the_pods_run_with_few_rights() -> None:
    """The Pod meets the restricted standard that its namespace enforces."""
    spec = base("Deployment")["spec"]["template"]["spec"]
    assert base("Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_flow_schemas_cover_the_service_account() -> None:
    """Both FlowSchemas name our account; the Lease's one is asked first and has a level of its own."""
    lease, rest = base("FlowSchema", "dra-scheduler-leader-election")["spec"], base("FlowSchema")["spec"]
    account = {"name": "dra-scheduler", "namespace": "dra-scheduler"}
    for spec in (lease, rest):
        assert spec["rules"][0]["subjects"] == [{"kind": "ServiceAccount", "serviceAccount": account}]
    assert lease["matchingPrecedence"] < rest["matchingPrecedence"]
    levels = (lease["priorityLevelConfiguration"]["name"], rest["priorityLevelConfiguration"]["name"])
    assert levels == ("leader-election", "workload-high")


def test_rights_are_exactly_the_calls_that_are_made() -> None:
    """The rules are the calls the edge makes and no more; the suite on the real API server proves each is needed."""
    rules = [*base("ClusterRole")["rules"], *base("Role", "dra-scheduler-leader-election")["rules"]]
    granted = sorted(
        (resource + ("." + group if group else ""), verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )
    watched = ["nodes", "pods", "namespaces", "services", "replicationcontrollers"]
    watched += ["replicasets.apps", "statefulsets.apps", "poddisruptionbudgets.policy"]
    watched += ["persistentvolumes", "persistentvolumeclaims"]
    storage = ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments")
    watched += [f"{name}.storage.k8s.io" for name in storage]
    watched += [
        f"{name}.resource.k8s.io" for name in ("deviceclasses", "resourceslices", "devicetaintrules", "resourceclaims")
    ]
    expected = [(resource, verb) for resource in watched for verb in ("list", "watch")]
    expected += [
        ("pods", "get"),
        ("pods", "delete"),
        ("pods/binding", "create"),
        ("pods/status", "patch"),
        ("persistentvolumes", "get"),
        ("persistentvolumes", "patch"),
        ("persistentvolumeclaims", "get"),
        ("persistentvolumeclaims", "patch"),
        ("resourceclaims.resource.k8s.io", "get"),
        ("resourceclaims.resource.k8s.io", "patch"),
        ("resourceclaims.resource.k8s.io", "update"),
        ("resourceclaims.resource.k8s.io", "create"),
        ("resourceclaims.resource.k8s.io", "delete"),
        ("resourceclaims/status.resource.k8s.io", "patch"),
        ("resourceclaims/status.resource.k8s.io", "update"),
        ("resourceclaims/binding.resource.k8s.io", "patch"),
        ("resourceclaims/binding.resource.k8s.io", "update"),
        ("events.events.k8s.io", "create"),
        ("events.events.k8s.io", "patch"),
        ("tokenreviews.authentication.k8s.io", "create"),
        ("subjectaccessreviews.authorization.k8s.io", "create"),
        ("leases.coordination.k8s.io", "create"),
        ("leases.coordination.k8s.io", "get"),
        ("leases.coordination.k8s.io", "patch"),
    ]
    assert granted == sorted(expected)
    assert "*" not in str(rules)


def test_what_is_watched_is_allowed() -> None:
    """A kind added to the watch list without its rule would leave the scheduler waiting for ever."""
    from scheduler.api.kinds import WATCHED

    rules = base("ClusterRole")["rules"]
    for kind in WATCHED:
        for verb in ("list", "watch"):
            assert any(
                kind.group in rule["apiGroups"] and kind.plural in rule["resources"] and verb in rule["verbs"]
                for rule in rules
            ), f"{verb} {kind.resource}"


def test_the_image_holds_what_the_build_needs() -> None:
    """Each file that the Dockerfile copies exists and is let through by its ignore file."""
    folder = MANIFESTS / "overlays/kind"
    ignore = (folder / "Dockerfile.dockerignore").read_text().splitlines()
    copies = [
        line.split()[1:-1] for line in (folder / "Dockerfile").read_text().splitlines() if line.startswith("COPY ")
    ]
    sources = [source for words in copies for source in words if not words[0].startswith("--from")]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignore, source
    assert subprocess.run(["bash", "-n", str(folder / "load.sh")], check=False, timeout=30).returncode == 0
