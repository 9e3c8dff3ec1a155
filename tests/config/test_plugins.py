"""Merging profiles with the defaults and expanding multiPoint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.config.defaults import DEFAULT_PLUGINS, NOT_BUILT_YET, UPSTREAM_PLUGINS
from scheduler.config.model import EXTENSION_POINTS, PluginRef, PluginSet, Profile
from scheduler.config.plugins import expand, expand_profile, merge_plugins
from scheduler.errors import ConfigError

IMPLEMENTS = {
    "SchedulingGates": ["preEnqueue"],
    "PrioritySort": ["queueSort"],
    "NodeName": ["preFilter", "filter"],
    "NodeUnschedulable": ["preFilter", "filter"],
    "TaintToleration": ["preFilter", "filter", "preScore", "score"],
    "NodeAffinity": ["preFilter", "filter", "preScore", "score"],
    "NodePorts": ["preFilter", "filter"],
    "NodeResourcesFit": ["preFilter", "filter", "preScore", "score"],
    "VolumeRestrictions": ["preFilter", "filter"],
    "NodeVolumeLimits": ["preFilter", "filter"],
    "VolumeBinding": ["preFilter", "filter", "preScore", "score", "reserve", "preBind"],
    "VolumeZone": ["preFilter", "filter"],
    "PodTopologySpread": ["preFilter", "filter", "preScore", "score"],
    "InterPodAffinity": ["preFilter", "filter", "preScore", "score"],
    "DynamicResources": ["preEnqueue", "preFilter", "filter", "postFilter", "score", "reserve", "preBind"],
    "DefaultPreemption": ["preEnqueue", "postFilter"],
    "NodeResourcesBalancedAllocation": ["preScore", "score"],
    "ImageLocality": ["score"],
    "DefaultBinder": ["bind"],
    "NodeDeclaredFeatures": ["preFilter", "filter"],
    "mine:Racks": ["score", "filter"],
}


def refs(*names: str) -> tuple[PluginRef, ...]:
    """Entries from ``name`` or ``name=weight``."""
    return tuple(PluginRef(name, int(weight or 0)) for name, _, weight in (text.partition("=") for text in names))


def test_without_a_user_set_the_defaults_stand() -> None:
    """An empty user set changes nothing."""
    assert merge_plugins(DEFAULT_PLUGINS, PluginSet()) == DEFAULT_PLUGINS


def test_a_disabled_default_is_dropped_and_a_named_one_replaced_in_place() -> None:
    """The order of the defaults survives a changed weight; new plugins follow."""
    merged = merge_plugins(PluginSet(refs("a=1", "b=2", "c=3")), PluginSet(refs("new=4", "c=9"), ("a",)))
    assert merged.enabled == refs("b=2", "c=9", "new=4")


def test_a_plugin_disabled_and_enabled_moves_to_the_end() -> None:
    """Disabling a default and enabling it again is the way to change its place."""
    merged = merge_plugins(PluginSet(refs("a", "b")), PluginSet(refs("a=5"), ("a",)))
    assert merged.enabled == refs("b", "a=5")


def test_a_star_drops_every_default() -> None:
    """``*`` leaves just what the user enables."""
    assert merge_plugins(PluginSet(refs("a", "b")), PluginSet(refs("b=2"), ("*",))).enabled == refs("b=2")


def test_expansion_puts_named_multipoint_plugins_first() -> None:
    """Order at a point: named ones that multiPoint holds, other multiPoint ones, the rest of the named."""
    implements = {name: ["filter"] for name in "abcx"}
    sets = {"multiPoint": PluginSet(refs("a", "b", "c")), "filter": PluginSet(refs("x", "c"))}
    assert expand(sets, implements).points["filter"] == ("c", "a", "b", "x")


def test_a_point_can_disable_one_or_all_multipoint_plugins() -> None:
    """A name disabled at a point leaves that point only; ``*`` switches multiPoint off there."""
    implements = {name: ["filter", "score"] for name in "ab"}
    multi = PluginSet(refs("a", "b"))
    one = expand({"multiPoint": multi, "filter": PluginSet((), ("a",))}, implements)
    assert (one.points["filter"], one.points["score"]) == (("b",), ("a", "b"))
    none = expand({"multiPoint": multi, "filter": PluginSet(refs("b"), ("*",))}, implements)
    assert none.points["filter"] == ("b",)


def test_the_specific_weight_wins_and_zero_means_one() -> None:
    """Weight: score entry before multiPoint entry; 0 becomes 1."""
    implements = {name: ["score"] for name in "abc"}
    sets = {"multiPoint": PluginSet(refs("a=3", "b", "c=2")), "score": PluginSet(refs("a=7", "c"))}
    assert expand(sets, implements).weights == {"a": 7, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ({"filter": PluginSet(refs("Foo"))}, 'FilterPlugin "Foo" does not exist'),
        ({"multiPoint": PluginSet(refs("Foo"))}, 'PreFilterPlugin "Foo" does not exist'),
        ({"score": PluginSet(refs("NodePorts"))}, 'plugin "NodePorts" does not extend ScorePlugin plugin'),
        (
            {"score": PluginSet(refs("ImageLocality", "ImageLocality"))},
            'plugin "ImageLocality" already registered as "ScorePlugin"',
        ),
        (
            {"multiPoint": PluginSet(refs("ImageLocality", "ImageLocality"))},
            'plugin "ImageLocality" already registered as "ScorePlugin"',
        ),
    ],
)
def test_impossible_sets_are_refused_in_upstreams_words(sets: dict[str, PluginSet], message: str) -> None:
    """A missing, unfit or doubled plugin stops the start."""
    with pytest.raises(ConfigError) as caught:
        expand(sets, IMPLEMENTS)
    assert str(caught.value) == message


def test_the_default_profile_has_upstreams_order_and_weights() -> None:
    """Without plugins in the profile, each point runs the default list in its order."""
    expanded = expand_profile(Profile("dra-scheduler"), IMPLEMENTS)
    assert expanded.points["filter"] == (
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    )
    assert expanded.weights == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }
    assert expanded.points["bind"] == ("DefaultBinder",)


def test_the_default_list_is_upstreams_without_what_is_not_built() -> None:
    """Nothing else is missing from the list, and nothing is in another place."""
    missing = [ref.name for ref in UPSTREAM_PLUGINS if ref not in DEFAULT_PLUGINS.enabled]
    assert set(missing) <= NOT_BUILT_YET
    assert [ref for ref in UPSTREAM_PLUGINS if ref.name not in NOT_BUILT_YET] == list(DEFAULT_PLUGINS.enabled)


def test_a_user_plugin_joins_the_defaults() -> None:
    """module:Class at one point adds it behind the defaults of that point."""
    profile = Profile("p", plugins={"score": PluginSet(refs("mine:Racks=10"))})
    expanded = expand_profile(profile, IMPLEMENTS)
    assert expanded.points["score"][-1] == "mine:Racks"
    assert expanded.weights["mine:Racks"] == 10
    assert "mine:Racks" not in expanded.points["filter"]
    assert "mine:Racks" in expanded.names


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        (
            Profile("p", plugins={"bind": PluginSet((), ("*",))}),
            'at least one bind plugin is needed for profile with scheduler name "p"',
        ),
        (
            Profile("p", plugins={"queueSort": PluginSet((), ("*",))}),
            'only one queue sort plugin required for profile with scheduler name "p", but got 0',
        ),
        (Profile("p", arguments={"Foo": {}}), 'pluginConfig names "Foo", which does not exist'),
    ],
)
def test_a_profile_that_cannot_work_is_refused(profile: Profile, problem: str) -> None:
    """The message starts as kube-scheduler's does and names the profile."""
    with pytest.raises(ConfigError) as caught:
        expand_profile(profile, IMPLEMENTS)
    assert str(caught.value) == f"initializing profiles: creating profile for scheduler name p: {problem}"


_NAMES = st.lists(st.sampled_from([name for name in IMPLEMENTS if name != "mine:Racks"]), unique=True)


@given(disabled=_NAMES, enabled=_NAMES)
def test_merge_loses_and_doubles_nothing(disabled: list[str], enabled: list[str]) -> None:
    """After a merge each default that is not disabled stands once, and so does each enabled name."""
    merged = merge_plugins(DEFAULT_PLUGINS, PluginSet(refs(*enabled), tuple(disabled)))
    names = [ref.name for ref in merged.enabled]
    kept = {ref.name for ref in DEFAULT_PLUGINS.enabled} - set(disabled)
    assert sorted(names) == sorted(kept | set(enabled))


@given(disabled=_NAMES, named=_NAMES)
def test_expansion_holds_exactly_the_plugins_of_a_point(disabled: list[str], named: list[str]) -> None:
    """Disabling at a point removes just those not named there; no plugin stands at a point it lacks."""
    named = [name for name in named if "filter" in IMPLEMENTS[name]]
    sets = {"multiPoint": DEFAULT_PLUGINS, "filter": PluginSet(refs(*named), tuple(disabled))}
    expanded = expand(sets, IMPLEMENTS)
    able = {ref.name for ref in DEFAULT_PLUGINS.enabled if "filter" in IMPLEMENTS[ref.name]}
    assert sorted(expanded.points["filter"]) == sorted((able - set(disabled)) | set(named))
    for point in EXTENSION_POINTS:
        assert all(point in IMPLEMENTS[name] for name in expanded.points[point])


def test_the_built_plugins_are_those_that_exist() -> None:
    """The default list and the plugins package agree: same names, same order, upstream's points."""
    from plugins.registry import DEFAULT_PLUGINS as CLASSES
    from scheduler.framework.points import points_of

    assert list(CLASSES) == [ref.name for ref in DEFAULT_PLUGINS.enabled]
    for name, plugin_class in CLASSES.items():
        # NodeUnschedulable's and TaintToleration's preFilter does nothing in kube-scheduler.
        missing = set(IMPLEMENTS[name]) - {"preFilter"} - points_of(plugin_class)
        assert not missing, f"{name} lacks {missing}"
