"""extenders[]: HTTP extenders. Source: kube-scheduler 1.37, apis/config/v1 and apis/config/validation (spec 8, 9)."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import replace

from scheduler.config.fields import Fields
from scheduler.config.model import Extender, ExtenderTls, ManagedResource, Profile
from scheduler.config.problems import Problems
from scheduler.config.userinfo import masked
from scheduler.errors import ConfigError

DEFAULT_TIMEOUT_S = 5.0
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def decode_extenders(fields: Fields, problems: Problems) -> tuple[Extender, ...]:
    """The extenders in the configured order."""
    extenders: list[Extender] = []
    seen: set[str] = set()
    for entry in fields.objects("extenders"):
        extender = _extender(entry, problems, seen)
        if extender.prioritize_verb and extender.weight <= 0:
            problems.invalid(entry.at("weight"), extender.weight, "must have a positive weight applied to it")
        extenders.append(extender)
    binders = sum(1 for extender in extenders if extender.bind_verb)
    if binders > 1:
        shown = f"found {binders} extenders implementing bind"
        problems.invalid("extenders", shown, "only one extender can implement bind")
    return tuple(extenders)


def without_ignored(profiles: tuple[Profile, ...], extenders: tuple[Extender, ...]) -> tuple[Profile, ...]:
    """Resources that an extender wants NodeResourcesFit to ignore replace what each profile says (spec 8)."""
    ignored = sorted(
        {
            resource.name
            for extender in extenders
            for resource in extender.managed_resources
            if resource.ignored_by_scheduler
        }
    )
    if not ignored:
        return profiles
    changed = []
    for profile in profiles:
        fit = {**profile.arguments["NodeResourcesFit"], "ignoredResources": ignored}
        changed.append(replace(profile, arguments={**profile.arguments, "NodeResourcesFit": fit}))
    return tuple(changed)


def _extender(fields: Fields, problems: Problems, seen: set[str]) -> Extender:
    written = fields.text("urlPrefix")
    shown = masked(written)
    extender = Extender(
        url_prefix=shown,
        filter_verb=fields.text("filterVerb"),
        preempt_verb=fields.text("preemptVerb"),
        prioritize_verb=fields.text("prioritizeVerb"),
        bind_verb=fields.text("bindVerb"),
        weight=fields.whole("weight", 0),
        enable_https=fields.flag("enableHTTPS", False),
        tls=_tls(fields),
        http_timeout_s=fields.duration_s("httpTimeout", DEFAULT_TIMEOUT_S) or DEFAULT_TIMEOUT_S,
        node_cache_capable=fields.flag("nodeCacheCapable", False),
        managed_resources=_managed(fields, problems, seen),
        ignorable=fields.flag("ignorable", False),
        secret_url_prefix="" if shown == written else written,
    )
    fields.finish()
    return extender


def _managed(fields: Fields, problems: Problems, seen: set[str]) -> tuple[ManagedResource, ...]:
    """``seen``: names of all extenders before; one resource has one extender."""
    path = fields.at("managedResources")
    resources = []
    for entry in fields.objects("managedResources"):
        resource = ManagedResource(entry.text("name"), entry.flag("ignoredByScheduler", False))
        entry.finish()
        if not is_extended_resource(resource.name):
            problems.invalid(path, resource.name, "is an invalid extended resource name")
        if resource.name in seen:
            problems.invalid(path, resource.name, "duplicate extender managed resource name")
        seen.add(resource.name)
        resources.append(resource)
    return tuple(resources)


def is_extended_resource(name: str) -> bool:
    """True for a qualified name with a domain that is not Kubernetes' own."""
    domain, slash, rest = name.partition("/")
    if not slash or domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or name.startswith("requests."):
        return False
    return len(domain) <= 253 and _DOMAIN.fullmatch(domain) is not None and _NAME.fullmatch(rest) is not None


def _tls(fields: Fields) -> ExtenderTls | None:
    if not fields.has("tlsConfig"):
        fields.raw("tlsConfig")
        return None
    entry = fields.child("tlsConfig")
    tls = ExtenderTls(
        insecure=entry.flag("insecure", False),
        server_name=entry.text("serverName"),
        cert_file=entry.text("certFile"),
        key_file=entry.text("keyFile"),
        ca_file=entry.text("caFile"),
        cert_data=_bytes(entry, "certData"),
        key_data=_bytes(entry, "keyData"),
        ca_data=_bytes(entry, "caData"),
    )
    entry.finish()
    if tls.insecure and (tls.ca_file or tls.ca_data):
        raise ConfigError(entry.path, "specifying a root certificates file with the insecure flag is not allowed")
    return tls


def _bytes(fields: Fields, name: str) -> bytes:
    try:
        return base64.b64decode(fields.text(name), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(fields.at(name), f"not base64: {error}") from error
