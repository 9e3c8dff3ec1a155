"""Every plugin, the defaults of kube-scheduler included: one module or package each.

A plugin may import framework, state, dra and api; only the composition root imports plugins.
"""
