"""Differences that are accepted, because the defect is upstream's, and those that only look alike."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.conformity.rules import explain
from e2e.conformity.schedule_rules import explain_schedule

DEVICE = {"driver": "a", "pool": "p", "device": "d"}


@pytest.mark.parametrize(
    ("error", "multiple", "accepted"),
    [
        ("cannot add device a/p/d because a claim constraint would not be satisfied", False, True),
        ("checking device a/p/d: no such key", False, True),
        ("cannot add device a/p/d because a claim constraint would not be satisfied", True, False),
        ("cannot add device a/p/d2 because a claim constraint would not be satisfied", False, False),
        ("", False, False),
    ],
)
def test_upstream_fails_on_a_device_of_which_a_share_is_in_use(error: str, multiple: bool, accepted: bool) -> None:
    """Accepted only for that very device, and only when nobody may share it any more."""
    held = {"status": {"allocation": {"devices": {"results": [{**DEVICE, "shareID": "s"}]}}}}
    device = {"name": "d", "allowMultipleAllocations": multiple}
    slice_ = {"spec": {"driver": "a", "pool": {"name": "p"}, "devices": [device]}}
    found = explain("allocate", {"slices": [slice_], "allocated": [held]}, {"allocated": False}, {"error": error})
    assert (found is not None and found.name.startswith("share of a device")) is accepted


SKIPPED = {"prefilter": {"code": "Success", "skipped": ["VolumeRestrictions", "VolumeZone"]}, "message": "none"}
COUNTED = {"prefilter": {"code": "Success", "skipped": ["VolumeZone"]}, "message": "none"}


def _exclusive(*more: dict[str, Any], node: str = "gone") -> dict[str, Any]:
    """A Pod that wants a claim for one Pod only, which another one on ``node`` has."""
    metadata = {"namespace": "default", "name": "c"}
    claim = {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {"accessModes": ["ReadWriteOncePod"]}}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    user = {"kind": "Pod", "metadata": {"name": "u"}, "spec": {"volumes": volumes, "nodeName": node}}
    return {
        "objects": [claim, user, *more],
        "pod": {"metadata": {"name": "p"}, "spec": {"containers": [], "volumes": volumes}},
    }


@pytest.mark.parametrize(
    ("case", "ours", "theirs", "accepted"),
    [
        (_exclusive(), SKIPPED, COUNTED, True),
        (_exclusive({"kind": "Node", "metadata": {"name": "n"}}), SKIPPED, COUNTED, False),
        (_exclusive(node=""), SKIPPED, COUNTED, False),
        (_exclusive(), COUNTED, SKIPPED, False),
        (_exclusive(), SKIPPED, {**COUNTED, "message": "another"}, False),
    ],
)
def test_upstream_counts_users_of_a_claim_on_nodes_that_are_gone(
    case: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any], accepted: bool
) -> None:
    """Accepted only without any node, for a claim that is in use there, and when nothing else differs."""
    found = explain_schedule(case, ours, theirs)
    assert (found is not None and found.name.startswith("users of a claim")) is accepted
