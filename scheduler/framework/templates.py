"""What is known of all Pods of one template: answers that follow from nothing but the Pod's own text.

A plugin that declares ``by_template`` says that its PreFilter, PreScore and ``signature`` read only the Pod, and of it
neither name, UID, versions, times nor status; that PreFilter keeps what it computes under ``cycle.data[name]`` and
PreScore under ``cycle.data[f"{name}/score"]``; and that nobody changes what lies there. Then Pods of one template share
these answers. No state plays a part, so nothing here ever goes stale. ``Templates.verify`` asks again and compares.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.api.core import Pod
from scheduler.errors import InternalError
from scheduler.framework.cycle import Cycle
from scheduler.framework.status import Code
from scheduler.state.podinfo import pod_info

if TYPE_CHECKING:
    from scheduler.framework.profile import Profile

TEMPLATES_MAX = 512


def template_key(pod: Pod) -> bytes | None:
    """What Pods of one template have in common; None for a Pod whose status has a say in what it requests."""
    status = pod.status
    if (
        status.containerStatuses
        or status.initContainerStatuses
        or status.resources
        or status.allocatedResources
        or status.nodeAllocatableResourceClaimStatuses
    ):
        return None
    meta = pod.metadata
    return msgspec.json.encode(
        (meta.namespace, meta.labels, meta.annotations, meta.ownerReferences, meta.deletionTimestamp, pod.spec)
    )


class Template:
    """One template's answers. ``pre_filter`` and ``pre_score`` are the plugins still to be asked, in order.

    ``filters_known`` and ``scores_known``: whether a cycle has taught them yet. ``keys`` belongs to the class cache.
    """

    __slots__ = (
        "data",
        "filters_known",
        "keys",
        "name_plugins",
        "names",
        "pre_filter",
        "pre_score",
        "score_data",
        "score_skips",
        "scores_known",
        "skips",
    )

    def __init__(self) -> None:
        self.filters_known = self.scores_known = False
        self.pre_filter: tuple[Any, ...] = ()
        self.pre_score: tuple[Any, ...] = ()
        self.skips: tuple[str, ...] = ()
        self.score_skips: tuple[str, ...] = ()
        self.data: dict[str, Any] = {}
        self.score_data: dict[str, Any] = {}
        self.names: frozenset[str] | None = None
        self.name_plugins: list[str] = []
        self.keys: dict[Hashable, Hashable] = {}

    def learn_filters(self, profile: Profile, cycle: Cycle, names: frozenset[str] | None, by: list[str]) -> None:
        """Keep what PreFilter of the template's first Pod answered; it rejected nothing."""
        settled = [plugin for plugin in profile.pre_filter if by_template(plugin)]
        settled_names = {plugin.name for plugin in settled}
        if by and not (len(by) == 1 and by[0] in settled_names):
            return  # whose node set is whose cannot be told: such Pods are rare
        self.pre_filter = tuple(plugin for plugin in profile.pre_filter if not by_template(plugin))
        self.skips = tuple(name for name in settled_names if name in cycle.skip_filter)
        self.data = {name: cycle.data[name] for name in settled_names if name in cycle.data}
        self.names, self.name_plugins = names, list(by)
        self.filters_known = True

    def learn_scores(self, profile: Profile, cycle: Cycle) -> None:
        """Keep what PreScore of one Pod of the template answered."""
        settled = [plugin.name for plugin in profile.pre_score if by_template(plugin)]
        self.pre_score = tuple(plugin for plugin in profile.pre_score if not by_template(plugin))
        self.score_skips = tuple(name for name in settled if name in cycle.skip_score)
        keys = [f"{name}/score" for name in settled]
        self.score_data = {key: cycle.data[key] for key in keys if key in cycle.data}
        self.scores_known = True


def by_template(plugin: Any) -> bool:
    """Whether the plugin has declared it."""
    return bool(getattr(plugin, "by_template", False))


class Templates:
    """The templates of one profile, the least recently used one forgotten first.

    A Pod with a claim of its own name is the only one of its template: there may be one for every Pod.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Template] = OrderedDict()
        self._used: dict[bytes, Pod] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, cycle: Cycle) -> Template | None:
        """The template of the cycle's Pod. None when it has none, and in cycles whose plugins are measured."""
        if cycle.timer is not None:
            return None
        key = template_key(cycle.pod)
        if key is None:
            return None
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= TEMPLATES_MAX:
                forgotten, _ = self._known.popitem(last=False)
                self._used.pop(forgotten, None)
            found = self._known[key] = Template()
        else:
            self._known.move_to_end(key)
            self._used[key] = cycle.pod
        return found

    def verify(self, profile: Profile, state: Any) -> None:
        """Ask again for each template used since the last time. Raises InternalError with the first difference."""
        used, self._used = self._used, {}
        for key, pod in used.items():
            found = self._known.get(key)
            if found is not None and found.filters_known:
                _compare(found, profile, Cycle(pod, pod_info(pod), state))


def _compare(found: Template, profile: Profile, cycle: Cycle) -> None:
    for plugin in profile.pre_filter:
        if not by_template(plugin):
            continue
        answer = plugin.pre_filter(cycle)
        skipped = answer.status.code is Code.SKIP
        if skipped != (plugin.name in found.skips) or (not skipped and answer.status.code is not Code.SUCCESS):
            raise InternalError(
                f"PreFilter of {plugin.name} kept for pod {cycle.pod.key} is stale",
                (f"kept: {plugin.name in found.skips}", f"fresh: {answer.status.code.label}"),
            )
        if answer.node_names is not None and answer.node_names != found.names:
            raise InternalError(f"the node set of {plugin.name} kept for pod {cycle.pod.key} is stale")
    if not found.scores_known:
        return
    nodes = cycle.state.nodes
    for plugin in profile.pre_score:
        if by_template(plugin):
            status = plugin.pre_score(cycle, nodes, nodes.order())
            if (status.code is Code.SKIP) != (plugin.name in found.score_skips):
                raise InternalError(f"PreScore of {plugin.name} kept for pod {cycle.pod.key} is stale")
