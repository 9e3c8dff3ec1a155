"""The guard: an admission server that serialises the allocations of every scheduler in the cluster.

What may be allocated is decided by scheduler.dra (judge, admissions), which does no I/O; this package asks it, keeps it
up to date and speaks for it. kopf is the frame of the admission server and is imported in one module only.
"""
