"""InterPodAffinity: Pods that want to be near others, or away from them. Only the plugin.

Here: its filters and score over columns, wake-up rules. Never here: counting Pods or collecting their terms, which
``scheduler.state.topology`` maintains.
"""

from plugins.inter_pod_affinity.plugin import InterPodAffinity

__all__ = ["InterPodAffinity"]
