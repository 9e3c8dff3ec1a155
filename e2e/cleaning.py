"""Makes a shared cluster empty between tests, on the real API server and on the embedded one."""

from __future__ import annotations

from aiohttp import ClientResponse

from e2e.api import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    SLICES,
    Api,
    ApiError,
    Object,
    Resource,
)
from e2e.waiting import eventually

# Namespaces the API server itself makes; their content goes, they stay.
_PERMANENT = ("default", "kube-system", "kube-public", "kube-node-lease")


async def clean(api: Api, *, timeout_s: float = 20.0) -> None:
    """Delete Pods, claims, templates, classes, slices, Nodes in all namespaces and wait until they are gone.

    Finalizers of claims are removed: the Pods that used them are gone, nobody else is asked.
    """
    await eventually(lambda: _sweep(api), "the cluster is empty", timeout_s=timeout_s, interval_s=0.1)


async def _sweep(api: Api) -> bool:
    empty = True
    for resource in (RESOURCE_QUOTAS, PODS, CLAIMS, CLAIM_TEMPLATES, DEVICE_CLASSES, SLICES, NODES):
        for metadata in await _listed(api, resource):
            empty = False
            await _remove(api, resource, metadata["name"], metadata.get("namespace"), metadata.get("finalizers"))
    return empty


# A suite may leave objects nested deeper than json reads: only their metadata is looked at.
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"


async def _listed(api: Api, resource: Resource) -> list[Object]:
    async with api.session.get(resource.path(), headers={"Accept": _METADATA.format("List")}) as answer:
        return [item["metadata"] for item in (await answer.json()).get("items") or []]


async def _remove(api: Api, resource: Resource, name: str, namespace: str | None, finalizers: list[str] | None) -> None:
    path, accept = resource.path(namespace, name), {"Accept": _METADATA.format("")}
    options = {"gracePeriodSeconds": "0"} if resource is PODS else {}
    async with api.session.delete(path, params=options, headers=accept) as answer:
        await _removed(answer)
    if finalizers:
        headers = {**accept, "Content-Type": "application/merge-patch+json"}
        async with api.session.patch(path, data=b'{"metadata": {"finalizers": null}}', headers=headers) as answer:
            await _removed(answer)


async def _removed(answer: ClientResponse) -> None:
    if answer.status not in (200, 202, 404, 409, 422):  # 422: only its controller can change such a claim
        raise ApiError(answer.status, "", await answer.text())
