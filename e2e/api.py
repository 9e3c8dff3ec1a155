"""A small client for suites: raw dicts over aiohttp, against the real API server and the embedded one."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

Object = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Resource:
    """One kind's place in the API: group ("" for core), version, plural, and its kind."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """What objects carry in apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path; without a namespace the collection over all namespaces."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part is not None]
        return "/".join(parts)


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
DEVICE_TAINT_RULES = Resource("resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)


class ApiError(Exception):
    """The server refused: HTTP status, the Status object's reason and message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Api:
    """An async context manager; ``session`` is open in between and may be lent to the pretended kubelet.

    token and ca_file are left out for a server without authentication (the embedded one).
    """

    def __init__(
        self, base_url: str, *, token: str | None = None, ca_file: Path | None = None, user_agent: str = "e2e"
    ) -> None:
        self.base_url = base_url
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._ssl = ssl.create_default_context(cafile=str(ca_file)) if ca_file is not None else None
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session, with base URL and credentials; RuntimeError outside of ``async with``."""
        if self._session is None:
            raise RuntimeError("Api is used outside of 'async with'")
        return self._session

    async def __aenter__(self) -> Api:
        connector = aiohttp.TCPConnector(ssl=self._ssl, limit=200) if self._ssl else aiohttp.TCPConnector(limit=200)
        # Watches have no total time; a server that does not answer at all is caught by connect and by read.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        self._session = aiohttp.ClientSession(
            self.base_url, headers=self._headers, connector=connector, timeout=timeout
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout_s: float = 30.0,
    ) -> Object:
        """One request; returns the decoded answer, raises ApiError for 4xx and 5xx."""
        async with self.session.request(
            method,
            path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": content_type},
            params=params,
            timeout=aiohttp.ClientTimeout(total=timeout_s),
        ) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise _api_error(answer.status, text)
            content: Object = json.loads(text)
            return content

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str | None = None) -> Object:
        """POST; apiVersion and kind are filled in, the namespace defaults to the object's own."""
        namespace = namespace or body.get("metadata", {}).get("namespace")
        document = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return await self.request("POST", resource.path(namespace), document)

    async def get(
        self, resource: Resource, name: str, namespace: str | None = None, subresource: str | None = None
    ) -> Object:
        """GET one object."""
        return await self.request("GET", resource.path(namespace, name, subresource))

    async def find(self, resource: Resource, name: str, namespace: str | None = None) -> Object | None:
        """GET one object, None when there is none."""
        try:
            return await self.get(resource, name, namespace)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    async def list(self, resource: Resource, namespace: str | None = None, **params: str) -> list[Object]:
        """The items of a LIST; params are query parameters (labelSelector, fieldSelector)."""
        items: list[Object] = (await self.list_raw(resource, namespace, **params)).get("items") or []
        return items

    async def list_raw(self, resource: Resource, namespace: str | None = None, **params: str) -> Object:
        """The whole list object, with metadata.resourceVersion."""
        return await self.request("GET", resource.path(namespace), params=params)

    async def update(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Object:
        """PUT the object under its own name."""
        metadata = body["metadata"]
        document = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        place = namespace or metadata.get("namespace")
        return await self.request("PUT", resource.path(place, metadata["name"], subresource), document)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        namespace: str | None = None,
        subresource: str | None = None,
        content_type: str = MERGE_PATCH,
        **params: str,
    ) -> Object:
        """PATCH, a JSON merge patch unless said otherwise."""
        path = resource.path(namespace, name, subresource)
        return await self.request("PATCH", path, body, content_type=content_type, params=params)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        grace_period_s: int | None = None,
        missing_ok: bool = False,
    ) -> None:
        """DELETE one object; grace_period_s=0 removes a Pod without its kubelet."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        try:
            await self.request("DELETE", resource.path(namespace, name), options)
        except ApiError as error:
            if not (missing_ok and error.status == 404):
                raise

    async def delete_all(
        self, resource: Resource, namespace: str | None = None, *, grace_period_s: int | None = None
    ) -> None:
        """DELETE a collection."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        await self.request("DELETE", resource.path(namespace), options)

    async def bind(self, namespace: str, pod: str, node: str) -> None:
        """POST a Binding, as a scheduler does."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.request("POST", PODS.path(namespace, pod, "binding"), body)

    async def watch(
        self, resource: Resource, namespace: str | None = None, *, resource_version: str, **params: str
    ) -> AsyncIterator[tuple[str, Object]]:
        """Yield (type, object) from after resource_version until the server ends the watch.

        ERROR events are raised as ApiError.
        """
        query = {"watch": "true", "resourceVersion": resource_version, "allowWatchBookmarks": "true", **params}
        async with self.session.get(resource.path(namespace), params=query) as answer:
            if answer.status >= 400:
                raise _api_error(answer.status, await answer.text())
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if not line.strip():
                        continue
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _api_error(int(event["object"].get("code", 500)), json.dumps(event["object"]))
                    yield event["type"], event["object"]


def _api_error(status: int, text: str) -> ApiError:
    try:
        content = json.loads(text)
        return ApiError(status, str(content.get("reason", "")), str(content.get("message", "")))
    except (ValueError, AttributeError):
        return ApiError(status, "", text[:500])
