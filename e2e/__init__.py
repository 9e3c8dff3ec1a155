"""Everything that runs against a real control plane: its fixture, the suites, the pretended driver, the oracle.

Nothing here is shipped, and nothing in ``scheduler`` or ``plugins`` imports it.
"""
