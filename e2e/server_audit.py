"""The API server's own audit log, read as evidence: who wrote what, and who held the lease at that moment.

All times are the API server's, so no clocks are compared. Needs ``--audit-policy-file`` and ``--audit-log-path``:
``arguments`` makes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import yaml

LEASE = "dra-scheduler"
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_REVIEWS = frozenset({"tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews"})


class _Ref(msgspec.Struct, frozen=True):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Code(msgspec.Struct, frozen=True):
    code: int = 0


class _LeaseSpec(msgspec.Struct, frozen=True):
    holderIdentity: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    spec: _LeaseSpec = _LeaseSpec()


class Entry(msgspec.Struct, frozen=True):
    """One finished request. Times are texts that sort as they are: RFC 3339 in UTC with microseconds."""

    verb: str
    requestReceivedTimestamp: str
    stageTimestamp: str
    stage: str = ""
    user: _User = _User()
    objectRef: _Ref = _Ref()
    responseStatus: _Code = _Code()
    responseObject: _Answer | None = None

    @property
    def done(self) -> bool:
        """A write that the server has carried out."""
        return self.verb in WRITES and 200 <= self.responseStatus.code < 300

    @property
    def of_lease(self) -> bool:
        """A request for the lease of the replicas."""
        return self.objectRef.resource == "leases"

    def text(self) -> str:
        """In words."""
        ref = self.objectRef
        place = "/".join(part for part in (ref.resource, ref.namespace, ref.name, ref.subresource) if part)
        return f"{self.user.username} {self.verb} {place} received {self.requestReceivedTimestamp}"


_ENTRY = msgspec.json.Decoder(Entry)


class Term(msgspec.Struct, frozen=True):
    """One leadership: from the moment its first lease write was done until the next holder's."""

    user: str
    identity: str
    since: str


def arguments(folder: Path, users: Iterable[str]) -> tuple[Sequence[str], Path]:
    """Flags for kube-apiserver, and the file that the log will be in. Only writes of ``users`` are logged."""
    folder.mkdir(parents=True, exist_ok=True)
    names, verbs = sorted(users), sorted(WRITES)
    leases = [{"group": "coordination.k8s.io", "resources": ["leases"]}]
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "RequestResponse", "users": names, "verbs": verbs, "resources": leases},
            {"level": "Metadata", "users": names, "verbs": verbs},
            {"level": "None"},
        ],
    }
    file = folder / "audit-policy.yaml"
    file.write_text(yaml.safe_dump(policy))
    log = folder / "apiserver-audit.log"
    return (f"--audit-policy-file={file}", f"--audit-log-path={log}", "--audit-log-mode=blocking"), log


def read(log: Path) -> list[Entry]:
    """All entries in the order the requests ended. A last line that is being written is left out."""
    lines = log.read_bytes().split(b"\n")[:-1] if log.exists() else []
    return [_ENTRY.decode(line) for line in lines if line.strip()]


def terms(entries: Iterable[Entry]) -> list[Term]:
    """Who led, in order: each change of the holder that the server has stored. A release is a term of nobody."""
    found: list[Term] = []
    writes = [entry for entry in entries if entry.of_lease and entry.done and entry.responseObject is not None]
    for entry in sorted(writes, key=lambda entry: entry.stageTimestamp):
        assert entry.responseObject is not None
        identity = entry.responseObject.spec.holderIdentity or ""
        if not found or found[-1].identity != identity:
            found.append(Term(entry.user.username if identity else "", identity, entry.stageTimestamp))
    return found


def writes_out_of_term(entries: Sequence[Entry]) -> list[str]:
    """Writes that the server carried out for somebody while another held the lease, in words.

    A write counts from when the server *received* it, the lease from when the new holder's write was *done*: a leader
    knows of its lease only after that, so it cannot be wronged.
    """
    changes = terms(entries)
    bad = []
    for entry in entries:
        if not entry.done or entry.of_lease or entry.objectRef.resource in _REVIEWS:
            continue
        past = [term for term in changes if term.since <= entry.requestReceivedTimestamp]
        holder = past[-1].user if past else ""
        if holder != entry.user.username:
            bad.append(f"{entry.text()}, while {holder or 'nobody'} held the lease")
    return bad
