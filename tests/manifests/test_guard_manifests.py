"""manifests/guard: what the webhooks ask for, who may do what, and that the pieces fit the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cli.guard import add_arguments, guard_options
from scheduler.cli.options import Parser, UsageError, go_style
from scheduler.edge.claim_errors import guard_absence, guard_refusal
from scheduler.errors import ConfigError
from scheduler.guard.options import GuardOptions
from scheduler.guard.reviewer import MODES

GUARD = Path(__file__).resolve().parents[2] / "manifests/guard"


def found(file: str, kind: str) -> dict[str, Any]:
    """The one object of a kind in a file."""
    (document,) = (item for item in yaml.safe_load_all((GUARD / file).read_text()) if item["kind"] == kind)
    return dict(document)


def parsed(*flags: str) -> GuardOptions:
    """The options behind a command line."""
    parser = Parser(prog="guard")
    add_arguments(parser)
    return guard_options(parser.parse_args(go_style(parser, flags)))


def test_the_deployment_starts_with_flags_that_exist() -> None:
    """The container's arguments are a command line of the guard, ports and names are those of the other objects."""
    container = found("deployment.yaml", "Deployment")["spec"]["template"]["spec"]["containers"][0]
    command, *flags = container["args"]
    assert command == "guard"
    options = parsed(*flags)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"webhook": options.webhook_port, "https": options.secure_port}
    webhooks = found("webhook.yaml", "ValidatingWebhookConfiguration")
    assert options.webhook_configuration == webhooks["metadata"]["name"]
    service = found("service.yaml", "Service")["metadata"]
    assert f"{service['name']}.{service['namespace']}.svc" in options.hosts
    role = found("rbac.yaml", "Role")["rules"]
    named = [name for rule in role for name in rule.get("resourceNames", ())]
    assert named == [options.lease_name, options.certificate_secret]


def test_webhooks_are_called_for_new_allocations_only() -> None:
    """Both webhooks: the same rule and conditions, a path per mode, labels that exclude each other."""
    webhooks = found("webhook.yaml", "ValidatingWebhookConfiguration")["webhooks"]
    assert tuple(webhook["name"].partition(".")[0] for webhook in webhooks) == MODES
    for webhook, mode in zip(webhooks, MODES, strict=True):
        assert webhook["clientConfig"]["service"]["path"] == f"/{mode}"
        assert webhook["sideEffects"] == "NoneOnDryRun"
        assert webhook["rules"] == webhooks[0]["rules"]
        assert webhook["matchConditions"] == webhooks[0]["matchConditions"]
        (rule,) = webhook["rules"]
        assert (rule["resources"], rule["operations"]) == (["resourceclaims/status"], ["UPDATE"])
    assert [webhook["failurePolicy"] for webhook in webhooks] == ["Fail", "Ignore"]
    selectors = [webhook["namespaceSelector"]["matchExpressions"][0] for webhook in webhooks]
    assert [(selector["operator"], selector["values"]) for selector in selectors] == [
        ("NotIn", ["warn", "off"]),
        ("In", ["warn"]),
    ]


def test_our_scheduler_knows_the_webhooks_by_name() -> None:
    """What the API server says of them is read as the guard's refusal, or as its absence."""
    for webhook in found("webhook.yaml", "ValidatingWebhookConfiguration")["webhooks"]:
        name = webhook["name"]
        assert guard_refusal(f'admission webhook "{name}" denied the request: held') == "held"
        assert guard_absence(f'Internal error occurred: failed calling webhook "{name}": refused') == "refused"
    assert guard_refusal('admission webhook "other.example.com" denied the request: no') == ""
    assert guard_absence('failed calling webhook "other.example.com": no') == ""


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--tls-cert-file=x"], "must be given together"),
        (["--authority-overlap=2000h"], "less than a sixth"),
        (["--api-request-timeout=0s"], "greater than zero"),
        (["--leader-elect-renew-deadline=20s"], "leaseDuration"),
        (["--feature-gates=DRAAdminAccess=false"], ""),
    ],
)
def test_bad_flags_are_told(flags: list[str], words: str) -> None:
    """A clear error before anything starts."""
    if not words:
        from scheduler.guard.process import guard_features

        with pytest.raises(ConfigError):
            guard_features(parsed(*flags).feature_gates)
        return
    with pytest.raises((UsageError, ConfigError), match=words):
        parsed(*flags)
