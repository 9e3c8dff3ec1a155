"""On any cluster an explanation agrees with the decision, and asking leaves no trace."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cycle.decision import Placed
from scheduler.explain.attempts import attempt
from scheduler.explain.hints import find_hints
from scheduler.explain.outcome import report_failure
from scheduler.explain.pods import explain_pod
from tests.app.objects import gpu_class, node, pod
from tests.explain.clusters import DRIVER, Object, device, held, request, slice_of, snapshot, want
from tests.explain.test_pods import digest

MODEL = f'device.attributes["{DRIVER}"].model'
SELECTORS = ["true", f'{MODEL} == "H100"', f'{MODEL} != "H100"', f"has({MODEL})", "false"]
TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@st.composite
def clusters(draw: st.DrawFn) -> list[Object]:
    """One to four nodes with up to four devices, some held, some tainted; a Pod with up to two requests."""
    items: list[Object] = [gpu_class()]
    for number in range(draw(st.integers(1, 4))):
        name = f"n{number}"
        item = node(name, cpu=draw(st.sampled_from(["1", "8"])))
        if draw(st.integers(0, 4)) == 0:
            item["spec"] = {"taints": [TAINT]}
        devices = []
        for place in range(draw(st.integers(0, 4))):
            standing = draw(st.sampled_from(["free", "free", "held", "tainted"]))
            model = draw(st.sampled_from(["A100", "H100"]))
            devices.append(device(f"d{place}", model=model, taints=[TAINT] if standing == "tainted" else []))
            if standing == "held":
                user = f"user-{number}-{place}"
                items += [held(f"h-{number}-{place}", name, f"d{place}", pod=user)]
                items += [
                    pod(user, claim=f"h-{number}-{place}", nodeName=name, cpu=draw(st.sampled_from(["1", "10m"])))
                ]
        items += [item, slice_of(name, devices)]
    requests = [
        request(f"r{number}", draw(st.integers(1, 3)), draw(st.sampled_from(SELECTORS)))
        for number in range(draw(st.integers(1, 2)))
    ]
    constraints = [{"matchAttribute": f"{DRIVER}/model"}] if draw(st.booleans()) else None
    return [*items, want(*requests, constraints=constraints), pod("p", claim="want", cpu="500m")]


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_explanation_and_decision_agree(items: list[Object]) -> None:
    """The Pod fits exactly when a node does; its message is the condition's; each refusing plugin is in the message."""
    snap = snapshot(items)
    waiting = snap.pod("default", "p")
    profile, _ = snap.profile_for(waiting)
    before = digest(snap)
    found = explain_pod(profile, waiting, snap.state, snap.now)
    decision = attempt(profile, waiting, snap.state, snap.now)
    fitting = {name for group in found.nodes if group.fits for name in group.nodes}
    if isinstance(decision, Placed):
        assert (found.phase, found.node) == ("fits", decision.node)
        assert decision.node in fitting
    else:
        assert (found.phase, found.message) == ("waiting", report_failure(decision).message)
        assert not fitting
        for group in found.nodes:
            assert group.verdicts
            refused = any(verdict.plugin == "DynamicResources" for verdict in group.verdicts)
            assert bool(group.claims or group.notes) == refused
    assert sorted(name for group in found.nodes for name in group.nodes) == sorted(
        item["metadata"]["name"] for item in items if item["kind"] == "Node"
    )
    for group in found.nodes:
        for verdict in group.verdicts:
            # Each thing that refuses is told once for every node of the group, by listed texts or by number.
            told = sum(cause.nodes for cause in verdict.because) + verdict.more
            assert told == len(group.nodes) * len({cause.about for cause in verdict.because})
        for claim in group.claims:
            for report in claim.requests:
                assert report.devices == group.devices
                assert 0 <= report.left <= report.devices
    if found.phase == "waiting":
        find_hints(profile, waiting, snap.state, snap.now, found)
    assert digest(snap) == before
    snap.state.verify()
    for plugin in profile.plugins.values():
        if hasattr(plugin, "verify_caches"):
            plugin.verify_caches()
