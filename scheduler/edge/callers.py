"""Who asks the running scheduler something, and which objects they may see: the API server is asked about both.

Unlike /metrics, a question about objects never trusts the address it comes from: what ``kubectl port-forward`` carries
arrives from loopback. Answers are kept for 10 s, as in ``edge.auth``.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import msgspec

from scheduler.api.bodies import (
    ACCESS_REVIEWS_PATH,
    TOKEN_REVIEWS_PATH,
    ResourceAttributes,
    ReviewedUser,
    decode_access_review,
    decode_token_review,
    object_review_body,
    token_review_body,
)
from scheduler.edge.client import ApiClient
from scheduler.errors import ClusterError

KEPT_S = 10.0
KEPT_MAX = 20_000
REVIEW_TIMEOUT_S = 5.0
REVIEWS_AT_ONCE = 16


class UnansweredError(Exception):
    """The API server could not be asked; the caller gets 503 and may try again."""


class Reviews(Protocol):
    """Knows callers and their rights."""

    async def user(self, token: str) -> ReviewedUser | None:
        """Whose token this is, None for nobody's. Raises UnansweredError."""

    async def allowed(self, user: ReviewedUser, asked: ResourceAttributes) -> bool:
        """Whether RBAC (or whatever the cluster has) allows it. Raises UnansweredError."""


class EverybodyMay:
    """For the demo: a made-up cluster on loopback has nothing to hide."""

    async def user(self, token: str) -> ReviewedUser | None:
        """Anybody is welcome."""
        return ReviewedUser("demo")

    async def allowed(self, user: ReviewedUser, asked: ResourceAttributes) -> bool:
        """Always."""
        return True


class ApiReviews:
    """TokenReview and SubjectAccessReview, each answer kept for ``ttl_s`` seconds. Tokens are kept as digests only.

    At most ``REVIEWS_AT_ONCE`` requests are under way, so that a long list of namespaces does not flood the server.
    """

    def __init__(
        self, client: ApiClient, clock: Callable[[], float] = time.monotonic, *, ttl_s: float = KEPT_S
    ) -> None:
        self._client, self._clock, self._ttl_s = client, clock, ttl_s
        self._kept: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._slots = asyncio.Semaphore(REVIEWS_AT_ONCE)

    async def user(self, token: str) -> ReviewedUser | None:
        """One TokenReview, or the answer kept from the last one."""
        if not token:
            return None
        key = ("token", hashlib.sha256(token.encode()).digest())
        kept = self._known(key)
        if kept is not None:
            found: ReviewedUser | None = kept[0]
            return found
        review = await self._ask(TOKEN_REVIEWS_PATH, token_review_body(token), decode_token_review)
        user = review.user if review.authenticated else None
        self._keep(key, user)
        return user

    async def allowed(self, user: ReviewedUser, asked: ResourceAttributes) -> bool:
        """One SubjectAccessReview, or the answer kept from the last one."""
        # The whole identity is the key: rights may hang on a group or on an extra field alone.
        key = (msgspec.json.encode(user, order="deterministic"), asked)
        kept = self._known(key)
        if kept is None:
            allowed = await self._ask(ACCESS_REVIEWS_PATH, object_review_body(user, asked), decode_access_review)
            self._keep(key, allowed)
            return bool(allowed)
        return bool(kept[0])

    async def _ask(self, path: str, body: bytes, decode: Callable[[bytes], Any]) -> Any:
        try:
            async with self._slots:
                answer = await self._client.request("POST", path, body, timeout_s=REVIEW_TIMEOUT_S, gated=False)
            return decode(answer.body)
        except (ClusterError, msgspec.DecodeError) as error:
            raise UnansweredError(str(error)) from error

    def _known(self, key: Hashable) -> tuple[Any] | None:
        """The kept answer in a tuple, because None is one, too."""
        kept = self._kept.get(key)
        if kept is None or self._clock() - kept[0] >= self._ttl_s:
            return None
        return (kept[1],)

    def _keep(self, key: Hashable, answer: Any) -> None:
        self._kept[key] = (self._clock(), answer)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
