"""The behavioural suite on the embedded server; e2e/suites runs the same functions on the real one."""

from __future__ import annotations

from e2e.behaviour.claims import *  # noqa: F403 - the suite is collected by importing it
from e2e.behaviour.controllers import *  # noqa: F403 - the same
from e2e.behaviour.events import *  # noqa: F403 - the same
from e2e.behaviour.lists import *  # noqa: F403 - the same
from e2e.behaviour.objects import *  # noqa: F403 - the same
from e2e.behaviour.patches import *  # noqa: F403 - the same
from e2e.behaviour.pods import *  # noqa: F403 - the same
from e2e.behaviour.watches import *  # noqa: F403 - the same
