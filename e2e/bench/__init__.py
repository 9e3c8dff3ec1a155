"""Benchmarks: they print our time beside upstream's and decide nothing. Never here: tests."""
