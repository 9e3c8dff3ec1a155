"""The copy that a watch keeps of one kind, and what somebody who has seen it before still has to learn of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Copy(dict[str, Any]):
    """Objects by ``namespace/name``. While ``noted`` is a set, keys that are written or deleted are added to it.

    Only the ways of changing it that a reflector uses note anything; the others of ``dict`` are not to be used.
    """

    noted: set[str] | None = None

    def __setitem__(self, key: str, value: Any) -> None:
        """As of a dict."""
        if self.noted is not None:
            self.noted.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        """As of a dict."""
        if self.noted is not None:
            self.noted.add(key)
        super().__delitem__(key)

    def pop(self, key: str, default: Any = None) -> Any:
        """The value that was there, or ``default``; never KeyError."""
        if self.noted is not None:
            self.noted.add(key)
        return super().pop(key, default)


News = list[tuple[str, str, Any | None]]
"""Kind, key and object (None: deleted) of what has changed."""


def follow(copies: Mapping[str, Copy]) -> None:
    """Note from now on what changes."""
    for copy in copies.values():
        copy.noted = set()


def follow_no_more(copies: Mapping[str, Copy]) -> None:
    """Note nothing any more."""
    for copy in copies.values():
        copy.noted = None


def noted_count(copies: Mapping[str, Copy]) -> int:
    """How many objects have changed since ``follow`` or ``take_news``."""
    return sum(len(copy.noted or ()) for copy in copies.values())


def take_news(copies: Mapping[str, Copy], most: int) -> News:
    """What has changed since ``follow`` or the last call, as it is now; ``most`` of it. Cost: O(what is returned)."""
    news: News = []
    for kind, copy in copies.items():
        while copy.noted and len(news) < most:
            key = copy.noted.pop()
            news.append((kind, key, copy.get(key)))
    return news


def learn(copies: Mapping[str, Copy], news: News) -> None:
    """Bring other copies to the same state."""
    for kind, key, value in news:
        if value is None:
            copies[kind].pop(key)
        else:
            copies[kind][key] = value
