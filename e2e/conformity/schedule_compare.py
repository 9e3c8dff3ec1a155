"""What two answers to a scheduling case must agree in, flattened: ``failures/n1/NodePorts`` -> plain value."""

from __future__ import annotations

import re
from typing import Any

from e2e.conformity.compare import allocation_value, error_meaning
from scheduler.config.defaults import DEFAULT_PLUGINS, UPSTREAM_PLUGINS

Json = dict[str, Any]
MISSING = frozenset(ref.name for ref in UPSTREAM_PLUGINS) - frozenset(ref.name for ref in DEFAULT_PLUGINS.enabled)
"""Default plugins of kube-scheduler that this tree has not got: what they say is left out on both sides."""

_PREEMPTION_TEXT = re.compile(r" ?preemption: .*", re.DOTALL)
_CHOSEN = re.compile(r"found a potential placement for pod on node [^ ,]+")


def schedule_difference(ours: Json, theirs: Json) -> Json:
    """The facts that differ, as key -> [ours, upstream's]; empty when they agree.

    Where upstream picks one of several equals at random (the best nodes, candidates that do equally little harm, the
    claim that is freed), any of them is right.
    """
    one, other = _facts(ours), _facts(theirs)
    found = {key: [one.get(key), other.get(key)] for key in sorted({*one, *other}) if one.get(key) != other.get(key)}
    _settle_choice(found, ours, theirs)
    _settle_candidates(found, ours, theirs)
    _settle_error(found, ours, theirs)
    return found


def _settle_choice(found: Json, ours: Json, theirs: Json) -> None:
    best = theirs.get("best") or ()
    if "selected" in found and ours.get("selected") in best and theirs.get("selected") in best:
        del found["selected"]


def _settle_candidates(found: Json, ours: Json, theirs: Json) -> None:
    mine, given = ours.get("preemption") or {}, theirs.get("preemption") or {}
    ties = given.get("ties") or ()
    if mine.get("nominated_node") not in ties or given.get("nominated_node") not in ties:
        return
    expected = given["candidates"][mine["nominated_node"]]["victims"]
    if (mine.get("victims") or []) == (expected or []):
        for key in ("preemption/nominated_node", "preemption/victims"):
            found.pop(key, None)


def _settle_error(found: Json, ours: Json, theirs: Json) -> None:
    """Nodes are tried at the same time upstream: of several errors whichever comes first ends the attempt."""
    errors = [_status(status) for status in (theirs.get("nodes") or {}).values() if status["code"] == "Error"]
    mine, given = error_meaning(ours.get("message")), error_meaning(theirs.get("message"))
    texts = [reason for status in errors if status for reason in status["reasons"]]
    if "message" in found and mine in texts and given in texts:
        del found["message"]


def _facts(answer: Json) -> Json:
    for key in ("input_error", "panic"):
        if key in answer:
            return {key: answer[key]}
    facts: Json = {"preenqueue": _status(answer.get("preenqueue"))}
    pre = answer.get("prefilter") or {}
    facts["prefilter"] = _status(pre)
    facts["prefilter/nodes"] = pre.get("nodes")
    if pre.get("code") == "Success":
        facts["prefilter/skipped"] = sorted(set(pre.get("skipped") or ()) - MISSING)
    for node, status in (answer.get("nodes") or {}).items():
        facts[f"nodes/{node}"] = _status(status)
    for node, by_plugin in (answer.get("failures") or {}).items():
        facts.update({f"failures/{node}/{name}": _status(one) for name, one in by_plugin.items()})
    for kind in ("scores", "raw_scores"):
        for node, by_plugin in (answer.get(kind) or {}).items():
            facts.update({f"{kind}/{node}/{name}": value for name, value in by_plugin.items()})
    facts.update({f"weights/{name}": weight for name, weight in (answer.get("weights") or {}).items()})
    facts["score_error"] = answer.get("score_error")
    facts["best"] = answer.get("best") or None
    for node, claims in (answer.get("allocations") or {}).items():
        facts[f"allocations/{node}"] = [[one["claim"], allocation_value(one["allocation"])] for one in claims]
    facts.update({f"reserve/{node}": _status(status) for node, status in (answer.get("reserve") or {}).items()})
    facts |= {key: answer.get(key) for key in ("selected", "reason", "unschedulable_plugins")}
    facts["unschedulable_plugins"] = facts["unschedulable_plugins"] or None
    facts["message"] = _message(answer.get("message"))
    facts |= _preemption(answer.get("preemption") or {})
    return {key: value for key, value in facts.items() if value is not None and not _of_missing(key)}


def _of_missing(key: str) -> bool:
    return key.rpartition("/")[2] in MISSING


def _status(status: Json | None) -> Json | None:
    if status is None:
        return None
    reasons = [error_meaning(reason) for reason in status.get("reasons") or ()]
    plugin = status.get("plugin", "") if status["code"] != "Success" else ""
    return {"code": status["code"], "plugin": plugin, "reasons": reasons}


def _message(message: str | None) -> str | None:
    text = error_meaning(message)
    if text is None:
        return None
    if "DefaultPreemption" in MISSING:
        return _PREEMPTION_TEXT.sub("", text)
    return _CHOSEN.sub("found a potential placement for pod on node *", text)


def _preemption(given: Json) -> Json:
    if not given or "DefaultPreemption" in MISSING:
        return {}
    status = _status(given.get("status")) or {}
    if status.get("code") == "Error":
        # The oracle words this itself when its own look at all candidates breaks; the message has upstream's text.
        status = {"code": "Error"}
    else:
        status["reasons"] = [_message(reason) for reason in status.get("reasons", ())]
    facts: Json = {
        "preemption/nominated_node": given.get("nominated_node") or None,
        "preemption/victims": given.get("victims") or None,
        "preemption/status": status,
        "preemption/ties": given.get("ties") or None,
        "preemption/deallocates": bool(given.get("deallocated_claims")),
    }
    for node, candidate in (given.get("candidates") or {}).items():
        facts[f"preemption/candidates/{node}"] = [candidate["victims"], candidate["pdb_violations"]]
    return facts
