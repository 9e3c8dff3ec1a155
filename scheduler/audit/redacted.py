"""A story without the names that its reader may not know. What happened, when and how often stays."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from scheduler.audit.records import ClaimUse, DeviceUse, NodeScore, Record
from scheduler.audit.stories import Holding, Story

Hide = Callable[[str], str]
"""A text without the names in it that are hidden."""


def redacted(told: Story, hide: Hide) -> Story:
    """``told`` with every text that can hold a name put through ``hide``. Its own name is what the reader asked for.

    Left alone: words of ours (kinds, outcomes), uids, versions and digests, names of plugins, profiles and capacities.
    """
    records, holdings = [_record(record, hide) for record in told.records], [_holding(h, hide) for h in told.holdings]
    return replace(told, records=records, holdings=holdings)


def _record(record: Record, hide: Hide) -> Record:
    return replace(
        record,
        replica=hide(record.replica),
        pod=hide(record.pod),
        node=hide(record.node),
        text=hide(record.text),
        by=hide(record.by),
        claims=tuple(_use(use, hide) for use in record.claims),
        scores=tuple(_score(score, hide) for score in record.scores),
    )


def _use(use: ClaimUse, hide: Hide) -> ClaimUse:
    return replace(use, claim=hide(use.claim), devices=tuple(_device(device, hide) for device in use.devices))


def _device(device: DeviceUse, hide: Hide) -> DeviceUse:
    return replace(device, device=hide(device.device), request=hide(device.request))


def _score(score: NodeScore, hide: Hide) -> NodeScore:
    return replace(score, node=hide(score.node))


def _holding(holding: Holding, hide: Hide) -> Holding:
    return replace(
        holding,
        device=hide(holding.device),
        claim=hide(holding.claim),
        pod=hide(holding.pod),
        node=hide(holding.node),
        freed_by=hide(holding.freed_by),
        freed=hide(holding.freed),
    )
