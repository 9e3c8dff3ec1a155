"""Makes a shared cluster empty between tests, on the real API server and on the embedded one."""

from __future__ import annotations

from e2e.api import CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES, Api, ApiError, Resource
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
    for resource in (PODS, CLAIMS, CLAIM_TEMPLATES, DEVICE_CLASSES, SLICES, NODES):
        for item in await api.list(resource):
            empty = False
            metadata = item["metadata"]
            await _remove(api, resource, metadata["name"], metadata.get("namespace"), metadata.get("finalizers"))
    return empty


async def _remove(api: Api, resource: Resource, name: str, namespace: str | None, finalizers: list[str] | None) -> None:
    try:
        await api.delete(resource, name, namespace, grace_period_s=0 if resource is PODS else None)
        if finalizers:
            await api.patch(resource, name, {"metadata": {"finalizers": None}}, namespace)
    except ApiError as error:
        if error.status not in (404, 409):
            raise
