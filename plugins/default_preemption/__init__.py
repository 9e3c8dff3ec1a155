"""DefaultPreemption: when no node has room, find the node where the least important Pods would have to go.

Here: who may preempt, which candidate is the best, what is said. Never here: trying the filters on what might be
(``scheduler.framework.dryrun``), evicting (the edge).
"""

from plugins.default_preemption.plugin import DefaultPreemption

__all__ = ["DefaultPreemption"]
