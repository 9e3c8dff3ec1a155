"""The structured-parameters allocator: pools, ledger, search, results. Pure. Never here: Pods' other needs, I/O, clocks."""
