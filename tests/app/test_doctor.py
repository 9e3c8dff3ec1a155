"""The doctor's round: how often it looks, and what it needs of a configuration."""

from __future__ import annotations

from scheduler.app.doctor import partitions, settled
from scheduler.config import load_config
from scheduler.dra.limits import DeviceLimit
from scheduler.explain.doctor_facts import Diagnosis, DoctorFinding


def finding(check: str, name: str = "x") -> DoctorFinding:
    return DoctorFinding("warning", check, name, "", "", identity=(check, name))


class Looks:
    """Answers with one diagnosis after the other, and a clock that only sleeping moves."""

    def __init__(self, *looks: list[DoctorFinding]) -> None:
        self.looks, self.at, self.now = list(looks), [], 0.0  # type: ignore[var-annotated]

    async def look(self) -> Diagnosis:
        self.at.append(self.now)
        return Diagnosis(self.looks.pop(0))

    async def sleep(self, pause_s: float) -> None:
        self.now += pause_s

    async def settled(self, settle_s: float | None = None) -> Diagnosis:
        return await settled(self.look, settle_s, lambda: self.now, self.sleep)


async def test_a_healthy_cluster_is_looked_at_once() -> None:
    """No finding, no waiting."""
    looks = Looks([])
    assert (await looks.settled()).findings == []
    assert looks.at == [0.0]


async def test_findings_are_looked_at_until_they_have_settled() -> None:
    """After 5 s for what should never be, after 20 s for what a controller tidies up."""
    twice, leaked = finding("device-held-twice"), finding("reserved-for-nobody")
    looks = Looks([twice, leaked], [leaked, twice], [leaked, finding("device-gone")])
    assert (await looks.settled()).findings == [leaked]
    assert looks.at == [0.0, 5.0, 20.0]


async def test_the_last_look_is_the_one_that_is_told() -> None:
    """Versions in commands must be the newest."""
    newer = DoctorFinding("warning", "device-gone", "x", "newer", "", identity=("device-gone", "x"))
    looks = Looks([finding("device-gone")], [newer])
    assert (await looks.settled()).findings == [newer]


async def test_the_wait_can_be_chosen() -> None:
    """--settle: 0 tells the first look."""
    looks = Looks([finding("reserved-for-nobody")])
    assert len((await looks.settled(0.0)).findings) == 1
    assert looks.at == [0.0]


def test_a_partition_counts_only_when_it_is_enabled() -> None:
    """Arguments of a plugin that no profile runs part nothing."""
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: parted
  plugins: {multiPoint: {enabled: [{name: Partition}]}}
  pluginConfig: [{name: Partition, args: {drivers: [d], pools: [p]}}]
- schedulerName: open
  pluginConfig: [{name: Partition, args: {drivers: [d]}}]
"""
    limit = DeviceLimit(frozenset({"d"}), frozenset({"p"}))
    assert partitions(load_config(text)) == {"parted": limit, "open": DeviceLimit()}
