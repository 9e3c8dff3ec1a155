"""One module per command: arguments in, exit code out. Never here: what the command does."""
