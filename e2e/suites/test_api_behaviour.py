"""The behavioural suite on the real API server: whatever the embedded server claims holds here too."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from e2e.behaviour.claims import *  # noqa: F403 - the suite is collected by importing it
from e2e.behaviour.controllers import *  # noqa: F403 - the same
from e2e.behaviour.events import *  # noqa: F403 - the same
from e2e.behaviour.lists import *  # noqa: F403 - the same
from e2e.behaviour.objects import *  # noqa: F403 - the same
from e2e.behaviour.patches import *  # noqa: F403 - the same
from e2e.behaviour.pods import *  # noqa: F403 - the same
from e2e.behaviour.subject import Subject
from e2e.behaviour.watches import *  # noqa: F403 - the same
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.fixtures import make_api


@pytest.fixture
async def api(control_plane: ControlPlane) -> AsyncIterator[Subject]:
    """The real server as the behavioural suite sees it, with a namespace of the test's own."""
    control_plane.stop_kube_scheduler()
    namespace = f"behaviour-{uuid.uuid4().hex[:8]}"
    async with make_api(control_plane) as client:
        subject = Subject(client, namespace)
        await subject.made("/api/v1/namespaces", {"metadata": {"name": namespace}})
        yield subject
        await subject.delete(f"/api/v1/namespaces/{namespace}")
