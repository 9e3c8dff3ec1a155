"""Random faults in front of the real API server; the long runs are ``make chaos``."""
