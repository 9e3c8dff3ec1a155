"""The binder: what counts is where the Pod is."""

from __future__ import annotations

import pytest

from scheduler.api.kinds import POD
from scheduler.edge.binder import Binder, BindUnknownError, BoundElsewhereError, PodGatedError, PodGoneError
from scheduler.edge.client import ApiClient
from scheduler.edge.errors import ServerError
from scheduler.embedded import EmbeddedServer, Fault
from scheduler.embedded.faults import Action

from .objects import load_pod, read_pod
from .scripted import ScriptedServer, Sleeps, client_for, reply


@pytest.fixture
def binder(api: ApiClient, sleeps: Sleeps) -> Binder:
    return Binder(api, sleep=sleeps)


def binds(server: EmbeddedServer) -> int:
    return sum(1 for entry in server.audit.writes() if entry.call.subresource == "binding")


async def test_created_is_success_whatever_the_body(server: ScriptedServer, sleeps: Sleeps) -> None:
    """201 with a Status body is a bound Pod after exactly one POST that carries the uid."""
    from scheduler.api.kinds import convert

    pod = convert(POD, {"metadata": {"name": "p", "namespace": "ns", "uid": "u-1"}})
    server.answers(reply({"kind": "Status", "status": "Success", "code": 201}, 201))
    async with client_for(server, sleeps) as client:
        await Binder(client, sleep=sleeps).bind(pod, "n1")
    assert [str(seen) for seen in server.requests] == ["POST /api/v1/namespaces/ns/pods/p/binding"]
    assert server.requests[0].json["metadata"] == {"namespace": "ns", "name": "p", "uid": "u-1"}
    assert server.requests[0].json["target"] == {"kind": "Node", "name": "n1"}


async def test_bound_already(embedded: EmbeddedServer, api: ApiClient, binder: Binder) -> None:
    """On the same node: success. On another: a lost race that names the node."""
    pod = load_pod(embedded)
    await binder.bind(pod, "n1")
    await binder.bind(pod, "n1")
    with pytest.raises(BoundElsewhereError) as caught:
        await binder.bind(pod, "n2")
    assert caught.value.node_name == "n1"
    assert caught.value.lost_race
    assert (await read_pod(api)).spec.nodeName == "n1"


async def test_pod_gone_replaced_or_going(embedded: EmbeddedServer, api: ApiClient, binder: Binder) -> None:
    """A missing, recreated or deleting Pod is never bound, and the error says it may be dropped."""
    pod = load_pod(embedded)
    await api.call("DELETE", POD.path("default", "p"))
    with pytest.raises(PodGoneError) as caught:
        await binder.bind(pod, "n1")
    assert caught.value.pod_gone
    load_pod(embedded)
    with pytest.raises(PodGoneError):
        await binder.bind(pod, "n1")
    assert not (await read_pod(api)).spec.nodeName
    held = load_pod(embedded, "held")
    path = POD.path("default", "held")
    await api.call("PATCH", path, b'{"metadata":{"finalizers":["x/y"]}}', "application/merge-patch+json")
    await api.call("DELETE", path)
    with pytest.raises(PodGoneError):
        await binder.bind(held, "n1")


async def test_gated_pod(embedded: EmbeddedServer, binder: Binder) -> None:
    """A Pod with gates is not bound; that is neither a race nor a vanished Pod."""
    pod = load_pod(embedded, schedulingGates=[{"name": "wait"}])
    with pytest.raises(PodGatedError) as caught:
        await binder.bind(pod, "n1")
    assert not caught.value.lost_race
    assert not caught.value.pod_gone


@pytest.mark.parametrize("action", [Action.DROP_BEFORE, Action.DROP_AFTER])
@pytest.mark.parametrize("times", [1, 3])
async def test_lost_answers(
    embedded: EmbeddedServer, api: ApiClient, binder: Binder, action: Action, times: int
) -> None:
    """Whenever the answer is lost, the Pod ends bound once and the call returns."""
    pod = load_pod(embedded)
    embedded.faults.add(Fault(action, verb="create", kind="pods", subresource="binding", times=times))
    await binder.bind(pod, "n1")
    assert (await read_pod(api)).spec.nodeName == "n1"


@pytest.mark.parametrize(("code", "times"), [(429, 1), (429, 3), (500, 1), (500, 3), (503, 3), (409, 1), (504, 1)])
async def test_passing_refusals(
    embedded: EmbeddedServer, api: ApiClient, binder: Binder, code: int, times: int
) -> None:
    """Refusals that pass are repeated."""
    pod = load_pod(embedded)
    embedded.faults.add(Fault(Action.ANSWER, verb="create", kind="pods", subresource="binding", times=times, code=code))
    if code == 409:
        # The Pod shows no reason for it: the refusal itself is the error.
        with pytest.raises(Exception, match="modified"):
            await binder.bind(pod, "n1")
        return
    await binder.bind(pod, "n1")
    assert (await read_pod(api)).spec.nodeName == "n1"


async def test_lasting_server_error(embedded: EmbeddedServer, binder: Binder) -> None:
    """A lasting 500 is the end after 4 tries; the Pod was read to be sure that it is not bound."""
    pod = load_pod(embedded)
    embedded.faults.add(Fault(Action.ANSWER, verb="create", kind="pods", subresource="binding", times=None))
    with pytest.raises(ServerError):
        await binder.bind(pod, "n1")
    assert binds(embedded) == 4


async def test_long_silence_after_a_lost_answer(
    embedded: EmbeddedServer, api: ApiClient, binder: Binder, sleeps: Sleeps
) -> None:
    """However long the server is away, the Pod is read until it answers: what took effect is never undone."""
    pod = load_pod(embedded)
    embedded.faults.add(Fault(Action.DROP_AFTER, verb="create", kind="pods", subresource="binding"))
    embedded.faults.add(Fault(Action.ANSWER, verb="get", kind="pods", code=503, times=200))
    await binder.bind(pod, "n1")
    assert sum(sleeps.pauses_s) >= 120
    assert binds(embedded) == 1


async def test_outcome_that_stays_unknown(embedded: EmbeddedServer, binder: Binder) -> None:
    """When the Pod may not be read the outcome is unknown, and nobody is told that it failed."""
    pod = load_pod(embedded)
    embedded.faults.add(Fault(Action.DROP_AFTER, verb="create", kind="pods", subresource="binding"))
    embedded.faults.add(Fault(Action.ANSWER, verb="get", kind="pods", code=403, times=None))
    with pytest.raises(BindUnknownError):
        await binder.bind(pod, "n1")
