"""What a plugin is, what it may return, and the machine that runs one profile. Never here: any particular plugin."""
