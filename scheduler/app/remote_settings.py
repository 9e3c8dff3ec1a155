"""What a running scheduler was started with: its configuration and feature gates, for deciding as it does elsewhere."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec

from scheduler.app.remote import TIMEOUT_S, Remote, reached
from scheduler.config import SchedulerConfig, load_config
from scheduler.config.gates import parse_feature_gates
from scheduler.edge.client import ApiClient
from scheduler.edge.errors import ApiError
from scheduler.errors import ClusterError, UserError

CONFIGZ, FLAGZ = "/configz", "/flagz"
_FLAGZ_JSON = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz"


@dataclass(frozen=True, slots=True)
class Settings:
    """``gates``: those that were set. ``caveats``: what the scheduler did not tell, or does and nobody follows here."""

    config: SchedulerConfig
    gates: dict[str, bool]
    caveats: list[str] = field(default_factory=list)


class _Configz(msgspec.Struct):
    componentconfig: msgspec.Raw


class _Flagz(msgspec.Struct):
    flags: dict[str, str]


def settings_of(remote: Remote) -> Settings:
    """Of the scheduler that ``remote`` means. Needs the right to get /configz; without that to get /flagz the gates are
    taken for the defaults, which a caveat tells. Raises UserError, ClusterError, ConfigError, OSError.
    """
    return asyncio.run(_settings_of(remote))


async def _settings_of(remote: Remote) -> Settings:
    async with reached(remote) as access, ApiClient(access, user_agent="dra-scheduler command") as client:
        config = _config(await _configz(client), access.server)
        try:
            answer = await client.call("GET", FLAGZ, timeout_s=TIMEOUT_S, accept=_FLAGZ_JSON)
            flags = msgspec.json.decode(answer.body, type=_Flagz).flags
        except (ApiError, msgspec.DecodeError) as error:
            return Settings(config, {}, [f"feature gates are taken for the defaults: {FLAGZ} was not told: {error}"])
    caveats = []
    if flags.get("namespaces"):
        caveats.append(f"the scheduler serves Pods of {flags['namespaces']} only; here those of every namespace are")
    return Settings(config, parse_feature_gates(flags.get("feature-gates", "")), caveats)


async def _configz(client: ApiClient) -> bytes:
    server = client.access.server
    try:
        return (await client.call("GET", CONFIGZ, timeout_s=TIMEOUT_S)).body
    except ApiError as error:
        if error.status == 404:
            text = f"{server} tells no configuration ({CONFIGZ}): is it a scheduler? For the demo leave --server out"
            raise ClusterError(text) from error
        if error.status == 401:
            raise UserError("token", "", "the scheduler does not accept it") from error
        if error.status == 403:
            text = f"its owner may not get {CONFIGZ} of the scheduler; a ClusterRole with nonResourceURLs grants it"
            raise UserError("token", "", text) from error
        raise


def _config(body: bytes, server: str) -> SchedulerConfig:
    try:
        document = msgspec.json.decode(body, type=_Configz).componentconfig
    except msgspec.DecodeError as error:
        raise ClusterError(f"{server} answered something else than a configuration: {error}") from error
    return load_config(bytes(document).decode())
