"""Clusters built from plain objects, to be asked and changed without a cluster. Never here: reading files, deciding."""
