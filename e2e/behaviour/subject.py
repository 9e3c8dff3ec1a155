"""The server under test, seen raw: status codes, bodies and watch lines, in a namespace of the test's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from e2e.api import Api

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
RESOURCE = "/apis/resource.k8s.io/v1"


@dataclass(frozen=True)
class Answer:
    """What came back: HTTP code, body (a dict when it is JSON, else text), headers."""

    code: int
    body: Any
    headers: Mapping[str, str]

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def revision(self) -> int:
        return int(self.body["metadata"]["resourceVersion"])

    @property
    def causes(self) -> list[tuple[str, str]]:
        """(reason, field) of each cause of an Invalid answer."""
        return [(cause["reason"], cause["field"]) for cause in self.body["details"]["causes"]]


class Stream:
    """An open watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._rest = b""
        self._lines: list[bytes] = []

    async def next(self, timeout_s: float = 10.0) -> tuple[str, Json]:
        """(type, object) of the next event. Raises EOFError at the end of the stream."""
        async with asyncio.timeout(timeout_s):
            while not self._lines:
                chunk = await self._response.content.readany()
                if not chunk:
                    raise EOFError
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                self._lines += [line for line in lines if line]
        event = json.loads(self._lines.pop(0))
        return event["type"], event["object"]

    async def until(self, event_type: str, name: str) -> Json:
        """Skips events until the one of this type and object name."""
        while True:
            found, obj = await self.next()
            if found == event_type and obj["metadata"].get("name") == name:
                return obj


class Subject:
    """The server under test. Paths: ns() for namespaced kinds of core, claims(), and plain strings."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._session = api.session
        self.namespace = namespace

    def ns(self, *parts: str) -> str:
        return "/".join(["/api/v1/namespaces", self.namespace, *parts])

    def claims(self, *parts: str) -> str:
        return "/".join([f"{RESOURCE}/namespaces", self.namespace, "resourceclaims", *parts])

    def group(self, group: str, *parts: str) -> str:
        return "/".join([f"/apis/{group}/namespaces", self.namespace, *parts])

    def unique(self, name: str) -> str:
        """A name for a cluster-scoped object that no other test uses."""
        return f"{self.namespace}-{name}"

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
        accept: str = "application/json",
    ) -> Answer:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": content_type, "Accept": accept}
        async with self._session.request(
            method, path, data=data, params=params, headers=headers, timeout=aiohttp.ClientTimeout(total=30)
        ) as answer:
            text = await answer.text()
            try:
                content = json.loads(text)
            except ValueError:
                content = text
            return Answer(answer.status, content, answer.headers)

    async def get(self, path: str, **params: str) -> Answer:
        return await self.call("GET", path, params=params)

    async def post(self, path: str, body: Any, **params: str) -> Answer:
        return await self.call("POST", path, body, params=params)

    async def patch(self, path: str, body: Any, content_type: str = MERGE) -> Answer:
        return await self.call("PATCH", path, body, content_type=content_type)

    async def put(self, path: str, body: Any) -> Answer:
        return await self.call("PUT", path, body)

    async def delete(self, path: str, options: Any = None) -> Answer:
        return await self.call("DELETE", path, options)

    async def made(self, path: str, body: Any) -> Json:
        """POST that must succeed; the created object."""
        answer = await self.post(path, body)
        assert answer.code == 201, answer.body
        obj: Json = answer.body
        return obj

    @asynccontextmanager
    async def watch(self, path: str, **params: str) -> AsyncIterator[Stream]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        query = {"watch": "true", "timeoutSeconds": "30", **params}
        async with self._session.get(path, params=query, timeout=timeout) as response:
            assert response.status == 200, await response.text()
            yield Stream(response)

    async def eventually(self, path: str, condition: Any, timeout_s: float = 15.0) -> Json:
        """GETs until condition(answer) holds, 50 ms apart; the last body."""
        async with asyncio.timeout(timeout_s):
            while True:
                answer = await self.get(path)
                if condition(answer):
                    body: Json = answer.body
                    return body
                await asyncio.sleep(0.05)


def config_map(name: str, **metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "b"}}


def pod(name: str, **spec: Any) -> Json:
    containers = [{"name": "c", "image": "registry.example.com/image:1"}]
    spec = {"schedulerName": "nobody", "containers": containers, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def node(name: str, **metadata: Any) -> Json:
    status = {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}, "status": status}


def binding(pod_name: str, node_name: str, **metadata: Any) -> Json:
    target = {"apiVersion": "v1", "kind": "Node", "name": node_name}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod_name, **metadata}, "target": target}


def request(name: str = "r", **exactly: Any) -> Json:
    return {"name": name, "exactly": {"deviceClassName": "gpu.example.com", **exactly}}


def claim(name: str, *requests: Json, **metadata: Any) -> Json:
    devices = {"requests": list(requests) or [request()]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, **metadata},
        "spec": {"devices": devices},
    }


def allocation(*devices: str, request_name: str = "r") -> Json:
    names = devices or ("gpu-0",)
    one = {"request": request_name, "driver": "gpu.example.com", "pool": "pool"}
    return {"devices": {"results": [{**one, "device": name} for name in names]}}


def consumer(pod_object: Json) -> Json:
    """The reservedFor entry of a Pod."""
    metadata = pod_object["metadata"]
    return {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
