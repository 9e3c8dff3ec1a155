"""What the edge raises instead of the HTTP library's exceptions.

ClusterError
├─ ApiError              the server answered no: status, reason, message, details
│  ├─ Conflict           409: something changed since we looked (also: it exists already)
│  ├─ NotFound           404
│  ├─ Gone               410: the revision is too old, list again
│  ├─ Invalid            422: the server refuses the object
│  ├─ Forbidden          403, and the 422 of ``resourceclaims/binding``: carries the missing RBAC rule
│  ├─ TooManyRequests    429: carries retry_after_s
│  └─ ServerError        5xx: for a write, the outcome is not certain
├─ ApiUnavailable        no connection: certainly not sent
├─ AnswerLost            sent, but no usable answer: the outcome is unknown, read back before undoing
└─ NotLeading            the write was not sent: this replica may no longer be the leader
"""

# ruff: noqa: N818 (the names are the API's own reasons: Conflict, Gone, Invalid; "Error" would only blur them)
from __future__ import annotations

import re

import msgspec

from scheduler.api.deep import decode_deep
from scheduler.errors import ClusterError

BINDING_CHECK = "resourceclaims/binding"


class StatusDetails(msgspec.Struct, frozen=True):
    """The part of a Status' details that callers use."""

    name: str = ""
    kind: str = ""
    uid: str = ""
    retryAfterSeconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """A metav1.Status: the body of every refusal and of an ERROR event."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


_STATUS = msgspec.json.Decoder(Status)


class ApiError(ClusterError):
    """The API server answered with an error.

    ``status`` is the HTTP code, ``reason`` the Status reason ("Conflict"), ``message`` the server's sentence,
    ``call`` what was asked ("PATCH /api/v1/..."). Text: the server's sentence alone, so that messages built from it
    read like kube-scheduler's.
    """

    def __init__(
        self, status: int, reason: str = "", message: str = "", details: StatusDetails | None = None, call: str = ""
    ) -> None:
        self.status, self.reason, self.message = status, reason, message
        self.details = details or StatusDetails()
        self.call = call
        super().__init__(message or f"HTTP {status} {reason}".rstrip() + (f" for {call}" if call else ""))


class Conflict(ApiError):
    """409: a precondition (uid, resourceVersion) failed, or the state forbids the change, or the name is taken."""


class NotFound(ApiError):
    """404: the object, or the whole kind, is not there."""


class Gone(ApiError):
    """410: the revision asked for has been compacted; only a new LIST helps."""


class Invalid(ApiError):
    """422: the object is refused; the same request is refused again."""


class Forbidden(ApiError):
    """The credentials may not do this. The text ends with the rule that is missing, in plain words."""

    def __init__(self, status: int, reason: str, message: str, details: StatusDetails | None, call: str) -> None:
        super().__init__(status, reason, message, details, call)
        self.rule = missing_rule(message)
        if self.rule:
            self.args = (f"{message} (missing RBAC rule: {self.rule})",)


class TooManyRequests(ApiError):
    """429: the server is overloaded; ask again after ``retry_after_s`` seconds (1.0 when it did not say)."""

    retry_after_s: float = 1.0


class ServerError(ApiError):
    """5xx. A write may or may not have taken effect: treat it like AnswerLost."""

    retry_after_s: float = 0.0


class ApiUnavailable(ClusterError):
    """No connection (refused, DNS, TLS, connect timeout). The request was certainly not sent."""


class AnswerLost(ClusterError):
    """The request may have been sent, but there is no usable answer. The outcome is unknown."""


class NotLeading(ClusterError):
    """A write was held back, because the lease is lost or too near its end. Nothing was sent."""


_CLASSES: dict[int, type[ApiError]] = {
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_CANNOT = re.compile(r'cannot (\S+) resource "([^"]+)" in API group "([^"]*)"')
_CANNOT_CORE = re.compile(r'cannot (\S+) resource "([^"]+)"')
_BINDING_VERB = re.compile(r'verb="(\w+)"')


def missing_rule(message: str) -> str:
    """The RBAC rule whose absence ``message`` reports, in plain words; "" when it reports something else.

    Source: the texts of the RBAC authorizer and of the granular claim authorization (on since 1.36), which checks
    without namespace and name, so that only a ClusterRole bound with a ClusterRoleBinding helps.
    """
    if BINDING_CHECK in message:
        verb = _BINDING_VERB.search(message)
        verbs = f"{verb.group(1)} (grant both: update, patch)" if verb else "update, patch"
        return (
            f'apiGroups ["resource.k8s.io"], resources ["{BINDING_CHECK}"], verbs {verbs}; '
            "in a ClusterRole bound by a ClusterRoleBinding, a namespaced Role never matches"
        )
    found = _CANNOT.search(message)
    if found:
        return f'apiGroups ["{found.group(3)}"], resources ["{found.group(2)}"], verbs ["{found.group(1)}"]'
    found = _CANNOT_CORE.search(message)
    return f'apiGroups [""], resources ["{found.group(2)}"], verbs ["{found.group(1)}"]' if found else ""


def decode_status(body: bytes | msgspec.Raw) -> Status:
    """The Status in ``body``; one made of the text itself when it is not JSON."""
    try:
        return decode_deep(_STATUS, body)
    except msgspec.DecodeError:
        return Status(message=bytes(body[:500]).decode("utf-8", "replace").strip())


def api_error(status: int, body: bytes, call: str = "", retry_after: str = "") -> ApiError:
    """The error for an answer: ``status`` >= 300, its body, and the Retry-After header ("" when absent)."""
    said = decode_status(body)
    return error_for(status, said, call, retry_after)


def error_for(status: int, said: Status, call: str = "", retry_after: str = "") -> ApiError:
    """The error for a decoded Status with HTTP code ``status`` (an ERROR event carries it in the body)."""
    kind = _CLASSES.get(status, ServerError if status >= 500 else ApiError)
    if status == 422 and BINDING_CHECK in said.message:
        kind = Forbidden
    error = kind(status, said.reason, said.message, said.details, call)
    if isinstance(error, TooManyRequests | ServerError):
        plain = retry_after.isascii() and retry_after.isdigit()
        wait_s = float(retry_after) if plain else float(error.details.retryAfterSeconds)
        if wait_s > 0:
            error.retry_after_s = wait_s
    return error
