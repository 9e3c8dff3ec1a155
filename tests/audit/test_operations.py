"""What a journal's lines leave out."""

from __future__ import annotations

from scheduler.api.kinds import POD, convert
from scheduler.audit.operations import encode
from tests.app.objects import pod


def test_what_kubectl_noted_of_a_manifest_is_not_recorded() -> None:
    """The note repeats the whole Pod, passwords in its environment included; other annotations stay."""
    item = pod("p")
    item["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "secret", "other": "kept"}
    recorded = convert(POD, item)
    for operation in (("apply", "Pod", None, recorded, 1, False), ("gang", "", "", True, "", [recorded], 0.0, 0)):
        line = encode(1, operation)
        assert b"secret" not in line
        assert b"kept" in line
    assert "secret" in str(recorded.metadata.annotations)
