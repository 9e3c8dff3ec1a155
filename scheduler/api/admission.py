"""What the guard reads and writes of other APIs: admission reviews, the Secret of its certificates, its configuration.

Source: admission.k8s.io/v1, admissionregistration.k8s.io/v1 and core/v1 of Kubernetes 1.37.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from scheduler.api.meta import ObjectMeta

REVIEW_KIND = "AdmissionReview"


def review_problem(review: object) -> str:
    """What is missing in a decoded AdmissionReview of an update, "" when it can be answered."""
    if not isinstance(review, dict):
        return "the body is no object"
    if review.get("kind") != REVIEW_KIND:
        return f"kind is {_shown(review.get('kind'))}, not {REVIEW_KIND}"
    request = review.get("request")
    if not isinstance(request, dict):
        return "request is missing"
    if not isinstance(request.get("uid"), str) or not request["uid"]:
        return "request.uid is missing"
    resource = request.get("resource")
    if not isinstance(resource, dict):
        return "request.resource is missing"
    for name in ("group", "version", "resource"):
        if not isinstance(resource.get(name), str):
            return f"request.resource.{name} is missing"
    for name in ("object", "oldObject", "userInfo"):
        if not isinstance(request.get(name), dict):
            return f"request.{name} is missing"
    for name in ("object", "oldObject"):
        metadata = request[name].get("metadata")
        if not isinstance(metadata, dict):
            return f"request.{name}.metadata is missing"
        if not isinstance(metadata.get("uid"), str) or not metadata["uid"]:
            return f"request.{name}.metadata.uid is missing"
    version = request["oldObject"]["metadata"].get("resourceVersion")
    if not isinstance(version, str) or not (version.isascii() and version.isdigit()):
        return "request.oldObject.metadata.resourceVersion is no number"
    return ""


def _shown(value: object) -> str:
    return repr(value)[:40]


class Secret(msgspec.Struct, frozen=True):
    """A Secret: names to bytes in base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None

    def values(self) -> dict[str, bytes]:
        """The decoded values; what is no base64 is left out."""
        found: dict[str, bytes] = {}
        for name, text in (self.data or {}).items():
            try:
                found[name] = base64.b64decode(text, validate=True)
            except (ValueError, binascii.Error):
                continue
        return found


class ClientConfig(msgspec.Struct, frozen=True):
    """Where a webhook is; only what signs its certificate matters here."""

    caBundle: str = ""


class Webhook(msgspec.Struct, frozen=True):
    """One webhook of a configuration."""

    name: str = ""
    clientConfig: ClientConfig = ClientConfig()


class WebhookConfiguration(msgspec.Struct, frozen=True):
    """A ValidatingWebhookConfiguration."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[Webhook, ...] = ()


_SECRET = msgspec.json.Decoder(Secret)
_CONFIGURATION = msgspec.json.Decoder(WebhookConfiguration)
_encode = msgspec.json.encode


def secret_path(namespace: str, name: str = "") -> str:
    """REST path of a Secret, or of the namespace's Secrets."""
    return f"/api/v1/namespaces/{namespace}/secrets" + (f"/{name}" if name else "")


def decode_secret(body: bytes) -> Secret:
    """A Secret from its JSON. Raises msgspec.DecodeError."""
    return _SECRET.decode(body)


def _encoded(values: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(value).decode() for name, value in values.items()}


def secret_body(namespace: str, name: str, values: Mapping[str, bytes]) -> bytes:
    """A Secret to create."""
    metadata = {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "dra-scheduler"}}
    return _encode(
        {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": _encoded(values)}
    )


def secret_patch(secret: Secret, values: Mapping[str, bytes]) -> bytes:
    """Merge patch that makes ``values`` all that the Secret holds, refused when somebody wrote it since."""
    data: dict[str, Any] = dict.fromkeys(secret.data or {})
    data |= _encoded(values)
    precondition = {"uid": secret.metadata.uid, "resourceVersion": secret.metadata.resourceVersion}
    return _encode({"metadata": precondition, "data": data})


def webhook_configuration_path(name: str) -> str:
    """REST path of a ValidatingWebhookConfiguration."""
    return f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{name}"


def decode_webhook_configuration(body: bytes) -> WebhookConfiguration:
    """A ValidatingWebhookConfiguration from its JSON. Raises msgspec.DecodeError."""
    return _CONFIGURATION.decode(body)


def ca_bundle_patch(configuration: WebhookConfiguration, bundle: bytes) -> bytes | None:
    """JSON patch that puts ``bundle`` (PEM) into every webhook, None when all have it.

    It is refused when the configuration was written since: places in its list may have moved.
    """
    text = base64.b64encode(bundle).decode()
    changes: Sequence[dict[str, Any]] = [
        {"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": text}
        for place, webhook in enumerate(configuration.webhooks)
        if webhook.clientConfig.caBundle != text
    ]
    if not changes:
        return None
    version = configuration.metadata.resourceVersion
    return _encode([{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *changes])
