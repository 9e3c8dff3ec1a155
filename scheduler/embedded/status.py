"""Answers that say no: the API server's Status object as an exception.

Codes, reasons, message texts and details are those of kube-apiserver 1.37 (apimachinery api/errors); the behavioural
suite checks each on the real server as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

OPTIMISTIC_LOCK_TEXT = "the object has been modified; please apply your changes to the latest version and try again"
EXPIRED_LIST_TEXT = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One complaint of validation: reason is the word of the API (FieldValueInvalid, FieldValueRequired, ...)."""

    field: str
    reason: str
    message: str

    def text(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def field_invalid(field: str, value: object, detail: str) -> FieldError:
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {_show(value)}: {detail}")


def field_required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def field_forbidden(field: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def field_duplicate(field: str, value: object) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {_show(value)}")


def field_not_supported(field: str, value: object, supported: Sequence[str]) -> FieldError:
    words = ", ".join(_show(word) for word in supported)
    return FieldError(field, "FieldValueNotSupported", f"Unsupported value: {_show(value)}: supported values: {words}")


def field_too_many(field: str, count: int, limit: int) -> FieldError:
    return FieldError(field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items")


def field_too_long(field: str, limit: int) -> FieldError:
    return FieldError(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def _show(value: object) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    import msgspec

    return msgspec.json.encode(value).decode()


class ApiError(Exception):
    """A refusal with HTTP code and Status body. Raised by the registry, rendered by the HTTP layer."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Json | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after_s = retry_after_s

    def status(self) -> Json:
        """The Status object as it stands in a reply or in a watch's ERROR event."""
        out: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            out["reason"] = self.reason
        details = dict(self.details or {})
        if self.retry_after_s is not None:
            details["retryAfterSeconds"] = self.retry_after_s
        if details or self.details is not None:
            out["details"] = details
        out["code"] = self.code
        return out


def _resource_details(name: str, group: str, kind: str) -> Json:
    details: Json = {"name": name} if name else {}
    return details | ({"group": group} if group else {}) | ({"kind": kind} if kind else {})


def qualified(resource: str, group: str) -> str:
    """The resource as messages print it: pods, resourceclaims.resource.k8s.io."""
    return f"{resource}.{group}" if group else resource


def not_found(resource: str, group: str, name: str) -> ApiError:
    message = f'{qualified(resource, group)} "{name}" not found'
    return ApiError(404, "NotFound", message, details=_resource_details(name, group, resource))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(resource: str, group: str, name: str) -> ApiError:
    message = f'{qualified(resource, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details=_resource_details(name, group, resource))


def conflict(resource: str, group: str, name: str, text: str = OPTIMISTIC_LOCK_TEXT) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {text}'
    return ApiError(409, "Conflict", message, details=_resource_details(name, group, resource))


def forbidden(resource: str, group: str, name: str, text: str) -> ApiError:
    message = f'{qualified(resource, group)} "{name}" is forbidden: {text}'
    return ApiError(403, "Forbidden", message, details=_resource_details(name, group, resource))


def invalid(kind: str, group: str, name: str, errors: Sequence[FieldError]) -> ApiError:
    texts = [error.text() for error in errors]
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = _resource_details(name, group, kind)
    details["causes"] = [{"reason": error.reason, "message": error.message, "field": error.field} for error in errors]
    message = f'{qualified(kind, group)} "{name}" is invalid: {joined}'
    return ApiError(422, "Invalid", message, details=details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def internal(message: str) -> ApiError:
    return ApiError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        details={"causes": [{"message": message}]},
    )


def plain_internal(message: str) -> ApiError:
    """A 500 without a reason: what the server answers when an error carries no Status of its own."""
    return ApiError(500, "", message)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def too_large_revision(wanted: int, current: int) -> ApiError:
    text = f"Too large resource version: {wanted}, current: {current}"
    return ApiError(
        504,
        "Timeout",
        f"Timeout: {text}",
        details={"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
        retry_after_s=1,
    )


def too_many_requests(message: str, retry_after_s: int | None = None) -> ApiError:
    return ApiError(429, "TooManyRequests", message, retry_after_s=retry_after_s)


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return ApiError(415, "UnsupportedMediaType", message)


def unsupported_patch() -> ApiError:
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, details={})
