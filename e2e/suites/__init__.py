"""Suites that need a real API server: one module per promise, marked ``e2e``; unit tests never belong here."""
