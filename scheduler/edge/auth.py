"""Who may read /metrics: the API server is asked who the token is and what it may do.

Source: delegated authentication and authorization of Kubernetes components; both answers are kept for 10 s.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal

import msgspec

from scheduler.api.bodies import (
    ACCESS_REVIEWS_PATH,
    TOKEN_REVIEWS_PATH,
    access_review_body,
    decode_access_review,
    decode_token_review,
    token_review_body,
)
from scheduler.edge.client import ApiClient
from scheduler.errors import ClusterError

KEPT_S = 10.0
KEPT_MAX = 1000
REVIEW_TIMEOUT_S = 5.0

Verdict = Literal["allowed", "forbidden", "unauthenticated", "unavailable"]


class Authorizer:
    """Asks TokenReview, then SubjectAccessReview for a non-resource path. Tokens are kept as digests only."""

    def __init__(
        self,
        client: ApiClient,
        clock: Callable[[], float] = time.monotonic,
        *,
        token_ttl_s: float = KEPT_S,
        authorized_ttl_s: float = KEPT_S,
        unauthorized_ttl_s: float = KEPT_S,
    ) -> None:
        self._client, self._clock = client, clock
        # One answer stands on both reviews, so it is kept no longer than the shorter-lived of them.
        self._kept_s: dict[Verdict, float] = {
            "allowed": min(token_ttl_s, authorized_ttl_s),
            "forbidden": min(token_ttl_s, unauthorized_ttl_s),
            "unauthenticated": token_ttl_s,
        }
        self._kept: OrderedDict[tuple[bytes, str], tuple[float, Verdict]] = OrderedDict()

    async def verdict(self, token: str, path: str) -> Verdict:
        """Whether the bearer of ``token`` may get ``path``. "unavailable" (never kept): nobody could be asked."""
        if not token:
            return "unauthenticated"
        key = (hashlib.sha256(token.encode()).digest(), path)
        kept = self._kept.get(key)
        if kept is not None and self._clock() - kept[0] < self._kept_s[kept[1]]:
            return kept[1]
        try:
            verdict = await self._ask(token, path)
        except (ClusterError, msgspec.DecodeError):
            return "unavailable"
        self._kept[key] = (self._clock(), verdict)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return verdict

    async def _ask(self, token: str, path: str) -> Verdict:
        answer = await self._client.request(
            "POST", TOKEN_REVIEWS_PATH, token_review_body(token), timeout_s=REVIEW_TIMEOUT_S, gated=False
        )
        review = decode_token_review(answer.body)
        if not review.authenticated:
            return "unauthenticated"
        answer = await self._client.request(
            "POST", ACCESS_REVIEWS_PATH, access_review_body(review.user, path), timeout_s=REVIEW_TIMEOUT_S, gated=False
        )
        return "allowed" if decode_access_review(answer.body) else "forbidden"
