"""User plugins that suites put into the scheduler on purpose."""
