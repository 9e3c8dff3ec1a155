"""Differential tests: our allocator and our CEL against upstream's own code, on generated cases.

Belongs here: generators, the comparison, the accepted differences, coverage, shrinking, seeded faults. Never here:
cases written by hand (tests/vectors) and anything the scheduler itself needs.
"""
