"""Which namespace commands mean that name none: that of the kubeconfig's current context, as kubectl does."""

from __future__ import annotations

import os
from pathlib import Path

from scheduler.edge.kubeconfig_library import kubeconfig_library

DEFAULT = "default"
IN_CLUSTER_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def current_namespace(kubeconfig: str = "") -> str:
    """Of ``kubeconfig``, else of the Pod that this runs in, else of $KUBECONFIG or ~/.kube/config; at last DEFAULT.

    Never raises: a file that cannot be read is told by whoever needs the cluster.
    """
    try:
        if not kubeconfig and os.environ.get("KUBERNETES_SERVICE_HOST"):
            return IN_CLUSTER_FILE.read_text(encoding="utf-8").strip() or DEFAULT
        _, config = kubeconfig_library()
        name = kubeconfig or os.environ.get("KUBECONFIG", "") or str(Path("~/.kube/config").expanduser())
        _, current = config.list_kube_config_contexts(config_file=name)
        return str(current["context"].get("namespace") or DEFAULT)
    except Exception:  # YAML, missing files, contexts that are not there: each has its own exceptions
        return DEFAULT
