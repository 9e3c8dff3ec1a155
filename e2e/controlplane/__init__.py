"""The real control plane for tests: build it, start it, stop it, leave nothing running.

What belongs here: processes, certificates, kubeconfig files and the pytest fixtures over them.
What never does: expectations about our scheduler; those are suites.
"""

from e2e.controlplane.cluster import ControlPlane, ControlPlaneOptions

__all__ = ["ControlPlane", "ControlPlaneOptions"]
