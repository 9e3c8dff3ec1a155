"""ClusterState: node columns, Pods, devices. Apply events, assume, forget. Never here: verdicts, I/O."""
