"""Bodies nobody should send: whatever comes, the answer is a refusal, never a bug of ours."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from e2e.behaviour.claims import resource_slice
from e2e.behaviour.controllers import template
from e2e.behaviour.events import event
from e2e.behaviour.subject import Json, allocation, claim, node, pod, request
from scheduler.embedded import EmbeddedServer
from scheduler.embedded.kinds import by_api_kind
from scheduler.embedded.patch import MERGE
from scheduler.embedded.status import ApiError

JUNK = st.sampled_from([None, True, 0, -1, 1.5, "", "x", "1Gi", [], [None], ["x"], [[]], {}, {"x": {}}, {"name": 5}])


class Place:
    """What the Event builder needs of a server under test."""

    namespace = "default"


SLICE = resource_slice("s", "n", {"name": "gpu-0", "capacity": {"m": {"value": "1Gi"}}, "taints": [{"key": "k"}]})
CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "x"}]}}
ENTRIES = [{"name": "x", "resourceClaimTemplateName": "t"}]
CLAIM = claim("c", request(tolerations=[{"key": "k"}], selectors=[{"cel": {"expression": "true"}}]))
CLAIM["status"] = {
    "allocation": allocation(),
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
}
BODIES: list[Json] = [
    pod("p", containers=[CONTAINER], resourceClaims=ENTRIES, tolerations=[{"key": "a"}]),
    {**node("n"), "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
    CLAIM,
    template("t"),
    SLICE,
    event(Place(), "e"),  # type: ignore[arg-type]  # only the namespace is read
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside a body, its kind and apiVersion left out."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [path] if path else []
    for key, inner in items:
        if path or key not in ("kind", "apiVersion"):
            found += places(inner, (*path, key))
    return found


def spoiled(body: Json, path: tuple[Any, ...], junk: Any) -> Json:
    out = copy.deepcopy(body)
    owner: Any = out
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = copy.deepcopy(junk)
    return out


def refusal(attempt: Callable[[], object]) -> int:
    """The code of the ApiError that an attempt ends in, 0 for none."""
    try:
        attempt()
    except ApiError as error:
        return error.code
    return 0


SPOILED = st.sampled_from(BODIES).flatmap(
    lambda body: st.tuples(st.just(body), st.sampled_from(places(body)), JUNK).map(
        lambda drawn: (body, spoiled(*drawn))
    )
)


@given(SPOILED)
@example((BODIES[0], spoiled(BODIES[0], ("spec", "containers", 0), "x")))
def test_a_spoiled_body_is_refused_or_stored(drawn: tuple[Json, Json]) -> None:
    """A valid body with one value replaced by junk is created, replaced and patched, or refused with an ApiError;
    what is stored can be listed as a table."""
    good, bad = drawn
    server = EmbeddedServer(seed=1)
    kind = by_api_kind(good["apiVersion"], good["kind"])
    assert kind is not None
    namespace = "default" if kind.namespaced else ""
    name = good["metadata"]["name"]
    attempts = [
        lambda: server.registry.create(kind, namespace, copy.deepcopy(bad)),
        lambda: server.registry.create(kind, namespace, copy.deepcopy(good)),
        lambda: server.registry.update(kind, namespace, name, copy.deepcopy(bad)),
        lambda: server.registry.patch(kind, namespace, name, MERGE, copy.deepcopy(bad)),
    ]
    if kind.has_status:
        attempts.append(
            lambda: server.registry.patch(kind, namespace, name, MERGE, copy.deepcopy(bad), subresource="status")
        )
    assert all(400 <= code < 500 for code in map(refusal, attempts) if code)
    for record in server.store.table(kind.table).ordered():
        assert record.json().startswith(b"{")
