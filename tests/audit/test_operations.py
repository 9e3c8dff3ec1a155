"""What a journal's lines leave out."""

from __future__ import annotations

from scheduler.api.kinds import POD, RESOURCE_CLAIM, convert, decode
from scheduler.api.resource import ResourceClaim
from scheduler.audit.operations import Operations, encode
from scheduler.state.cluster import ClusterState
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


def test_a_claim_that_is_nested_deeply_is_read_again() -> None:
    """Its parameters byte for byte; a line that cannot be read would end the replay."""
    deep = b"[" * 3000 + b"]" * 3000
    config = b'[{"opaque":{"driver":"d","parameters":' + deep + b"}}]"
    raw = b'{"metadata":{"name":"c","namespace":"n","uid":"u"},"spec":{"devices":{"config":' + config + b"}}}"
    claim = decode(RESOURCE_CLAIM, raw)
    operations = Operations(ClusterState())
    for operation in (("apply", "ResourceClaim", None, claim, 1, False), ("learn-claim", claim)):
        position, (name, *arguments) = operations.decode(encode(7, operation))
        assert (position, name) == (7, operation[0])
        (read,) = [argument for argument in arguments if isinstance(argument, ResourceClaim)]
        assert bytes(read.spec.devices.config[0].opaque.parameters) == deep
