"""Differences that are accepted, because the defect is upstream's, and those that only look alike."""

from __future__ import annotations

import pytest

from e2e.conformity.rules import explain

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
