"""TokenReview, SubjectAccessReview and their relatives: answered by functions a test can replace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scheduler.embedded.status import Json, bad_request

Authenticate = Callable[[str], str | None]
"""Token to user name, or None when it is not accepted."""
Authorize = Callable[[Json], bool]
"""SubjectAccessReview spec to allowed or not."""


@dataclass(slots=True)
class Reviewer:
    """Everybody is authenticated and everything allowed unless a test says otherwise."""

    authenticate: Authenticate = lambda _token: "embedded"
    authorize: Authorize = lambda _spec: True

    def review(self, plural: str, body: Any) -> Json:
        """The review with its status filled in."""
        if not isinstance(body, dict):
            raise bad_request("the object provided is unrecognized")
        spec = body.get("spec") or {}
        if plural == "tokenreviews":
            user = self.authenticate(str(spec.get("token") or ""))
            status: Json = {"authenticated": user is not None}
            if user is not None:
                status["user"] = {"username": user, "groups": ["system:authenticated"]}
        elif plural == "selfsubjectreviews":
            status = {"userInfo": {"username": "embedded", "groups": ["system:authenticated"]}}
        else:
            status = {"allowed": self.authorize(spec)}
        return {**body, "metadata": body.get("metadata") or {}, "status": status}
