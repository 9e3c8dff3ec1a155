"""Everything that does I/O: the API client, reflectors, writers, election, events, health and metrics.

Belongs here: asyncio, HTTP, files, threads, clocks, random numbers, and the mapping of the world's failures to our
error tree (``edge.errors``).
Never here: a decision about where a Pod runs, knowledge of how the API spells a field (``api.bodies`` builds bodies).
"""
