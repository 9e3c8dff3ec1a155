"""The structured-parameters allocator: which devices a Pod's claims get on a node.

Belongs here: pools and devices as the slices describe them, who holds what (the ledger), requests, selectors,
constraints, taints, counters, capacity, the search, and the allocation results. All of it is pure and deterministic.

Never here: I/O, clocks, random numbers, ids made up on the spot (an id source is passed in), Pods beyond their claim
references, and anything about queues, plugins or the API server.
"""
