"""A finding of lint: what is wrong with an object, where, why it matters and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass, field

SEVERITIES = ("error", "warning", "note")
"""error: Pods that use it cannot be scheduled; warning: some cannot, or not as meant; note: worth knowing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``check`` names the rule; ``subject`` is ``Kind namespace/name``, ``path`` the field inside it.

    ``file``: where the object was read, "" for one of a live cluster.
    """

    severity: str
    check: str
    subject: str
    path: str
    what: str
    why: str
    fix: str
    file: str = ""


@dataclass(slots=True)
class Findings:
    """Findings in the order of SEVERITIES. ``checked``: number of objects by kind; ``caveats``: what was not judged."""

    findings: list[Finding] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)

    @property
    def troubled(self) -> bool:
        """Whether there is more than notes."""
        return any(finding.severity != "note" for finding in self.findings)
