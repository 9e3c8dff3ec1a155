"""PodTopologySpread: Pods of a kind are kept evenly over domains. Only the plugin.

Here: constraints, their filter and score over columns, wake-up rules. Never here: counting Pods, which
``scheduler.state.topology`` maintains.
"""

from plugins.pod_topology_spread.plugin import PodTopologySpread

__all__ = ["PodTopologySpread"]
