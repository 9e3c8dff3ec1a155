"""Claims of a client that writes JSON with spaces: after any JSON write the server takes them for changed."""

from __future__ import annotations

import json
from typing import Any

from e2e.api import CLAIMS, Api, Object
from e2e.objects import claim, exactly

_MARK = {"mark": "parameters"}
PARAMETERS = '{"a": [1, 2], "when": "x < y && z > 1"}'


def _with_parameters(body: Any, parameters: str) -> bytes:
    text = json.dumps(body, separators=(",", ":"))
    mark = json.dumps(_MARK, separators=(",", ":"))
    assert mark in text
    return text.replace(mark, parameters).encode()


def _config(driver: str, **more: Any) -> list[Object]:
    return [{**more, "opaque": {"driver": driver, "parameters": _MARK}}]


async def _send(api: Api, method: str, path: str, body: bytes) -> Object:
    headers = {"Content-Type": "application/json"}
    async with api.session.request(method, path, data=body, headers=headers) as answer:
        assert answer.status in (200, 201), await answer.text()
        stored: Object = await answer.json()
        return stored


async def spaced_claim(api: Api, name: str, namespace: str, driver: str, parameters: str = PARAMETERS) -> Object:
    """A claim for one device of the class ``driver``, with ``parameters`` exactly as written."""
    body = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, **claim(name, exactly(driver))}
    body["spec"]["devices"]["config"] = _config(driver)
    return await _send(api, "POST", CLAIMS.path(namespace), _with_parameters(body, parameters))


async def allocated_spaced(
    api: Api, stored: Object, driver: str, pool: str, device: str, consumer: Object, parameters: str = PARAMETERS
) -> Object:
    """The claim with an allocation that holds the same parameters, as a scheduler stores it that speaks protobuf."""
    meta = stored["metadata"]
    result = {"request": "gpu", "driver": driver, "pool": pool, "device": device}
    devices = {"results": [result], "config": _config(driver, source="FromClaim")}
    body = {**stored, "status": {"allocation": {"devices": devices}, "reservedFor": [consumer]}}
    body["spec"] = {**body["spec"], "devices": {**body["spec"]["devices"], "config": _config(driver)}}
    path = CLAIMS.path(meta["namespace"], meta["name"], "status")
    return await _send(api, "PUT", path, _with_parameters(body, parameters))


async def create_raw(api: Api, body: Object, marker: str, raw: str, namespace: str = "default") -> None:
    """Create a claim whose JSON no library of ours would write; compact, as clients send it."""
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **body}
    text = json.dumps(made, separators=(",", ":")).replace(marker, raw)
    headers = {"Content-Type": "application/json"}
    async with api.session.post(CLAIMS.path(namespace), data=text.encode(), headers=headers) as answer:
        assert answer.status == 201, await answer.text()
