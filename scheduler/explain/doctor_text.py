"""A diagnosis as text."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.explain.doctor_facts import Diagnosis, DoctorFinding
from scheduler.explain.text import Paint, counted, plain

_STYLES = {"error": "bad", "warning": "hint", "note": "faint"}


def diagnosis_lines(found: Diagnosis, paint: Paint = plain) -> Iterator[str]:
    """Everything, one line at a time. Commands stand alone on their lines, so that they can be pasted, each once."""
    shown: dict[str, str] = {}
    for finding in found.findings:
        yield from _finding_lines(finding, shown, paint)
    counts = [(severity, sum(one.severity == severity for one in found.findings)) for severity in _STYLES]
    checked = ", ".join(f"{kind} {count}" for kind, count in found.checked.items())
    yield f"{', '.join(counted(number, severity) for severity, number in counts)} (looked at: {checked})"
    safe = sum(one.repair is not None for one in found.findings)
    if safe:
        yield f"{safe} of them can be repaired without touching a claim in use: --fix shows how, --fix --yes does it"
    yield from (paint("faint", f"note: {caveat}") for caveat in found.caveats)


def _finding_lines(finding: DoctorFinding, shown: dict[str, str], paint: Paint) -> Iterator[str]:
    """``shown``: commands that were printed before → the subject under which they were; it grows."""
    title = paint(_STYLES[finding.severity], finding.severity) + paint("title", f" {finding.subject}")
    yield title + paint("faint", f"  [{finding.check}]")
    yield f"  {finding.what}"
    yield f"  means: {finding.means}"
    if finding.advice:
        yield f"  think: {finding.advice}"
    fresh = [command for command in dict.fromkeys(finding.commands) if command not in shown]
    above = list(dict.fromkeys(shown[command] for command in finding.commands if command in shown))
    if above:
        yield f"  {'also needs' if fresh else 'heals it:'} what stands above under {', '.join(above)}"
    if fresh:
        yield "  heals it:"
        yield from (f"    {command}" for command in fresh)
    shown.update(dict.fromkeys(fresh, finding.subject))
