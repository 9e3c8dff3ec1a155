"""KubeSchedulerConfiguration v1, strict, and its defaults. Never here: reading files."""
