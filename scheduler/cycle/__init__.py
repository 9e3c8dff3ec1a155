"""decide(): one attempt for one Pod as a state machine without I/O. Never here: queues, API calls."""
