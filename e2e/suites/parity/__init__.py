"""The same manifests for kube-scheduler and for us on one control plane. Never here: what only one of them does."""
