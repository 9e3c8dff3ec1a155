"""Discovery of resource.k8s.io against a scripted server."""

from __future__ import annotations

from scheduler.edge.client import ApiClient
from scheduler.edge.discovery import TRIES_MAX, discover_kinds

from .scripted import ScriptedServer, Sleeps, reply, status

BETA = {"versions": [{"version": "v1beta1"}, {"version": "v1alpha3"}]}
CLAIMS = {"resources": [{"name": name} for name in ("resourceclaims", "resourceslices", "deviceclasses")]}
RULES = {"resources": [{"name": "devicetaintrules"}]}


async def test_each_useful_version_is_asked_for_its_resources(server: ScriptedServer, client: ApiClient) -> None:
    """One request for the group and one for each version; claims and rules may come from different ones."""
    server.answers(reply(BETA), reply(CLAIMS), reply(RULES))
    kinds = await discover_kinds(client, lambda text: None)
    assert (kinds.claim.version, kinds.taint_rule.version) == ("v1beta1", "v1alpha3")
    assert [request.path for request in server.requests] == [
        "/apis/resource.k8s.io",
        "/apis/resource.k8s.io/v1beta1",
        "/apis/resource.k8s.io/v1alpha3",
    ]


async def test_a_refusal_that_passes_is_waited_out(server: ScriptedServer, client: ApiClient) -> None:
    """While the server starts it refuses: asked again, the answer counts."""
    troubles: list[str] = []
    pauses = Sleeps()
    refusal = status(403, "Forbidden", "not yet")
    server.answers(refusal, reply(BETA), reply(CLAIMS), reply(RULES))
    kinds = await discover_kinds(client, troubles.append, sleep=pauses)
    assert kinds.claim.version == "v1beta1"
    assert troubles == ["/apis/resource.k8s.io: not yet"]
    assert len(pauses.pauses_s) == 1


async def test_without_an_answer_v1_is_assumed(server: ScriptedServer, client: ApiClient) -> None:
    """After a few tries the scheduler goes on with v1, having said why each time."""
    troubles: list[str] = []
    server.answers(*[status(403, "Forbidden", "no") for _ in range(TRIES_MAX)])
    kinds = await discover_kinds(client, troubles.append, sleep=Sleeps())
    assert (kinds.claim.version, kinds.taint_rule.version) == ("v1", "v1")
    assert len(troubles) == TRIES_MAX


async def test_a_server_without_a_known_version_is_named(server: ScriptedServer, client: ApiClient) -> None:
    """Nothing to wait for: it is said once."""
    troubles: list[str] = []
    server.answers(reply({"versions": [{"version": "v7"}]}))
    await discover_kinds(client, troubles.append, sleep=Sleeps())
    assert troubles == ["/apis/resource.k8s.io: no version that this scheduler knows is served: []"]
