"""The fit error: one line that says why no node was good enough, in upstream's words.

Source: kube-scheduler 1.37, FitError and the FailedScheduling event (spec 6.1, 6.2). Autoscalers and dashboards parse
the line, and a changed line costs a status write, so equal diagnoses give equal text.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.framework.diagnosis import nodes_available_text

NO_NODES_MESSAGE = "no nodes available to schedule pods"
"""The whole message when the cluster has no node at all."""

NOTE_BYTES_MAX = 1024
"""Longest note of an event that the API takes, in bytes of UTF-8."""

_CUT_MARK = " ..."


def fit_message(
    node_count: int, reasons: Mapping[str, int], prefilter_message: str = "", postfilter_message: str = ""
) -> str:
    """``0/<node_count> nodes are available: …``

    ``reasons`` counts nodes per reason; it is left out when PreFilter rejected the Pod (``prefilter_message`` not
    empty). Entries are sorted as texts, count included, so ``10 …`` comes before ``2 …``: the order carries no rank.
    ``postfilter_message`` follows as it is.
    """
    if prefilter_message:
        parts = [nodes_available_text(node_count, {}), f"{prefilter_message}."]
    else:
        parts = [nodes_available_text(node_count, reasons)]
    if postfilter_message:
        parts.append(postfilter_message)
    return " ".join(parts)


def event_note(message: str, limit_bytes: int = NOTE_BYTES_MAX) -> str:
    """``message`` as it fits an event's note: cut to ``limit_bytes`` bytes of UTF-8, the mark `` ...`` included.

    The cut falls on a character border (upstream's may fall inside a character; the API refuses such a note).
    """
    encoded = message.encode()
    if len(encoded) <= limit_bytes:
        return message
    return encoded[: limit_bytes - len(_CUT_MARK)].decode(errors="ignore") + _CUT_MARK
