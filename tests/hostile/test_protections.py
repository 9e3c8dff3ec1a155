"""Every protection against hostile input is there, and the test of it fails when it is taken out."""

from __future__ import annotations

import pytest

from tests.hostile.protections import PROTECTIONS, Protection

named = pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda one: one.name)


@named
def test_the_protection_is_there(protection: Protection) -> None:
    """What it guards against is met."""
    protection.probe()


@named
def test_the_probe_fails_without_the_protection(protection: Protection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that passes either way proves nothing."""
    protection.take_out(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)):
        protection.probe()
