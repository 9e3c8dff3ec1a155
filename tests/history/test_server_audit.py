"""Reading the API server's audit log: a write outside of one's own term is found."""

from __future__ import annotations

import json
from pathlib import Path

from e2e.server_audit import arguments, read, terms, writes_out_of_term


def line(second: float, user: str, resource: str, *, holder: str | None = None, code: int = 200) -> str:
    """One entry as kube-apiserver writes it."""
    entry = {
        "kind": "Event",
        "stage": "ResponseComplete",
        "verb": "patch",
        "user": {"username": user, "groups": ["system:masters"]},
        "objectRef": {"resource": resource, "namespace": "default", "name": "x"},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": f"2026-01-01T00:00:{second:09.6f}Z",
        "stageTimestamp": f"2026-01-01T00:00:{second + 0.001:09.6f}Z",
    }
    if holder is not None:
        entry["responseObject"] = {"kind": "Lease", "spec": {"holderIdentity": holder}}
    return json.dumps(entry) + "\n"


TAKEOVER = line(1, "a", "leases", holder="a-1") + line(2, "a", "resourceclaims") + line(9, "b", "leases", holder="b-1")


def judged(tmp_path: Path, text: str) -> list[str]:
    """What is found in a log."""
    log = tmp_path / "audit.log"
    log.write_text(text)
    return writes_out_of_term(read(log))


def test_writes_within_ones_own_term_are_right(tmp_path: Path) -> None:
    """Before and after the takeover, each by its leader."""
    assert judged(tmp_path, TAKEOVER + line(10, "b", "pods")) == []


def test_a_write_after_the_takeover_is_found(tmp_path: Path) -> None:
    """The ex-leader's write reached the server, and it was carried out."""
    (text,) = judged(tmp_path, TAKEOVER + line(10, "a", "pods"))
    assert text.startswith("a patch pods/default/x")
    assert text.endswith("while b held the lease")


def test_a_write_that_was_refused_is_not_one(tmp_path: Path) -> None:
    """409 changes nothing."""
    assert judged(tmp_path, TAKEOVER + line(10, "a", "pods", code=409)) == []


def test_a_write_before_anybody_led_and_after_the_release_is_found(tmp_path: Path) -> None:
    """Nobody holds the lease there."""
    assert len(judged(tmp_path, line(0, "a", "pods") + TAKEOVER)) == 1
    released = TAKEOVER + line(20, "b", "leases", holder="")
    assert len(judged(tmp_path, released + line(21, "b", "pods"))) == 1


def test_a_lease_write_that_was_refused_changes_no_term(tmp_path: Path) -> None:
    """The standby tried and lost."""
    log = tmp_path / "audit.log"
    log.write_text(line(1, "a", "leases", holder="a-1") + line(2, "b", "leases", holder="b-1", code=409))
    assert [term.user for term in terms(read(log))] == ["a"]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    """The log is read while the server runs."""
    log = tmp_path / "audit.log"
    log.write_text(TAKEOVER + '{"kind":"Ev')
    assert len(read(log)) == 3


def test_the_policy_logs_writes_of_the_replicas_alone(tmp_path: Path) -> None:
    """Lease answers with their content, so that terms can be told."""
    flags, log = arguments(tmp_path, ["b", "a"])
    assert f"--audit-log-path={log}" in flags
    policy = (tmp_path / "audit-policy.yaml").read_text()
    assert "RequestResponse" in policy
    assert "level: None" in policy
