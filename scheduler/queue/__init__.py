"""Which Pod is next, who waits, and what wakes it. Never here: deciding, clocks (time is an argument)."""
