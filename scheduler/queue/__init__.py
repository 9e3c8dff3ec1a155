"""Which Pod is next, who waits, and what wakes it. Never here: deciding, clocks (time is an argument), I/O.

Times are wall-clock seconds (float), because back-off ends on whole seconds of the wall clock as upstream's does.
"""
