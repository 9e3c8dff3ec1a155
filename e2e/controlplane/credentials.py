"""Users of the test control plane and the kubeconfig files that carry them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ADMIN = "admin"


@dataclass(frozen=True)
class User:
    """A user name with its groups, as authentication hands them to RBAC."""

    name: str
    groups: tuple[str, ...] = ()


# Static tokens, token -> user. They protect nothing: the server listens on loopback and lives for one test run.
BUILT_IN_USERS: Mapping[str, User] = {
    "admin-token": User(ADMIN, ("system:masters",)),
    "kube-scheduler-token": User("system:kube-scheduler"),
    "nobody-token": User("nobody"),
}


def token_file_text(users: Mapping[str, User]) -> str:
    """The content of kube-apiserver's --token-auth-file: token,user,uid,"group,group"."""
    lines = [f'{token},{user.name},{user.name},"{",".join(user.groups)}"' for token, user in users.items()]
    return "\n".join(lines) + "\n"


def kubeconfig(
    server: str,
    ca_pem: bytes,
    user: str,
    *,
    token: str | None,
    certificate: tuple[bytes, bytes] | None,
    namespace: str,
) -> dict[str, Any]:
    """A kubeconfig document with one cluster, one user and one context, everything inline."""
    credentials: dict[str, str] = {}
    if token is not None:
        credentials["token"] = token
    if certificate is not None:
        credentials["client-certificate-data"] = base64.b64encode(certificate[0]).decode()
        credentials["client-key-data"] = base64.b64encode(certificate[1]).decode()
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca_pem).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": namespace}}],
        "current-context": "test",
    }
