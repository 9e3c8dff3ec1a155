"""What we claim about the API, as tests that run on the embedded server and on the real one.

Belongs here: test functions that take the fixture `api` (a Subject) and nothing else of either server. Never: anything
only one of the two can do; that lives in tests/embedded or e2e/suites.
"""

from __future__ import annotations

import pytest

_MODULES = ("claims", "controllers", "events", "lists", "objects", "patches", "pods", "subject", "watches")

# Shows the values in failed assertions of these modules, which pytest does for test files only.
pytest.register_assert_rewrite(*(f"e2e.behaviour.{name}" for name in _MODULES))
