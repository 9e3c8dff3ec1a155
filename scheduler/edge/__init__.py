"""Everything that does I/O: it carries events in and instructions out. Never here: deciding."""
