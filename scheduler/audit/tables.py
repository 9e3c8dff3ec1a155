"""Records as flat rows, one per device, for spreadsheets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from scheduler.audit.records import ClaimUse, DeviceUse, Record

COLUMNS = (
    "time", "until", "kind", "outcome", "pod", "pod_uid", "node", "claim", "claim_uid", "given", "request", "device",
    "share", "count", "attempt", "score", "by", "text", "profile", "replica", "version", "config", "id",
)  # fmt: skip


def rows(record: Record, time_text: Callable[[float], str]) -> Iterator[tuple[object, ...]]:
    """One row per device, or one for a record without devices; the columns are COLUMNS."""
    for use in record.claims or (ClaimUse(""),):
        for device in use.devices or (DeviceUse(""),):
            score = next((entry.total for entry in record.scores if entry.node == record.node), "")
            yield tuple(
                _harmless(value)
                for value in (
                    time_text(record.time), time_text(record.last), record.kind, record.outcome, record.pod,
                    record.pod_uid, record.node, use.claim, use.uid, "yes" if use.given else "", device.request,
                    device.device, device.share, record.count, record.attempt or "", score, record.by, record.text,
                    record.profile, record.replica, record.version, record.config, record.id,
                )
            )  # fmt: skip


def _harmless(value: object) -> object:
    """A text that a spreadsheet would take for a formula is marked as text."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
