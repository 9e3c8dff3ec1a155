"""pytest fixtures over the control plane, and what they do when it cannot be had.

- control_plane: one for the whole session; clean_cluster: an Api on it with everything removed before the test.
- any_cluster: the test runs on the embedded server and on the real one.
- own_control_plane: a factory for suites that need other options or want to break it.
- make_api: an Api (async context manager) for any control plane.
Without Go and without KUBEBUILDER_ASSETS the tests are skipped; with CI=true they fail instead.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack

import pytest

from e2e.api import Api
from e2e.cleaning import clean
from e2e.controlplane import build
from e2e.controlplane.cluster import ControlPlane, ControlPlaneOptions
from scheduler.embedded import EmbeddedServer

_alive: list[ControlPlane] = []


def require_binaries() -> None:
    """Build or find the binaries; skip the test when that is impossible here, fail it when CI=true."""
    try:
        build.control_plane_binaries()
    except build.GoMissingError as error:
        reason = f"no real control plane: {error}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """The control plane that suites share: API priority and fairness on, the default controllers."""
    require_binaries()
    with ControlPlane() as plane:
        _alive.append(plane)
        yield plane
        _alive.remove(plane)


@pytest.fixture
def own_control_plane() -> Iterator[Callable[..., ControlPlane]]:
    """Call with the fields of ControlPlaneOptions: starts a control plane for this test alone (3 s)."""
    require_binaries()
    started: list[ControlPlane] = []
    with ExitStack() as stack:

        def start(**options: object) -> ControlPlane:
            plane = stack.enter_context(ControlPlane(ControlPlaneOptions(**options)))  # type: ignore[arg-type]  # the caller's keywords are checked at run time
            started.append(plane)
            _alive.append(plane)
            return plane

        yield start
        for plane in started:
            _alive.remove(plane)


def make_api(plane: ControlPlane, user_agent: str = "e2e") -> Api:
    """An Api as admin; use it with ``async with``."""
    return Api(plane.url, token=plane.admin_token, ca_file=plane.ca_file, user_agent=user_agent)


@pytest.fixture
async def clean_cluster(control_plane: ControlPlane) -> AsyncIterator[Api]:
    """An Api on the shared control plane with no nodes, slices, classes, Pods or claims left from others."""
    control_plane.stop_kube_scheduler()
    async with make_api(control_plane) as api:
        await clean(api)
        yield api
    control_plane.stop_kube_scheduler()


@pytest.fixture(params=["embedded", "real"])
async def any_cluster(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """The test runs twice: an empty cluster on the embedded API server and on the real one.

    What both must do alike is tested with this, so that the embedded server cannot drift.
    """
    if request.param == "embedded":
        server = EmbeddedServer()
        async with Api(await server.start()) as api:
            yield api
        await server.stop()
        return
    plane: ControlPlane = request.getfixturevalue("control_plane")
    plane.stop_kube_scheduler()
    async with make_api(plane) as api:
        await clean(api)
        yield api


def log_tails() -> str:
    """The ends of all servers' logs of the control planes that run now."""
    return "\n".join(plane.log_tails() for plane in _alive)
