"""Ranges of the plain fields. Source: kube-scheduler 1.37, apis/config/validation; component-base and client-go."""

from __future__ import annotations

from scheduler.config.durations import format_seconds
from scheduler.config.model import LeaderElection, SchedulerConfig
from scheduler.config.problems import Problems, Shown

RETRY_JITTER = 1.2
"""client-go waits up to retryPeriod times this between two tries; the renew deadline must be longer."""


def check_numbers(config: SchedulerConfig, problems: Problems) -> None:
    """parallelism, percentages and back-off."""
    if config.parallelism <= 0:
        problems.invalid("parallelism", config.parallelism, "should be an integer value greater than zero")
    _check_percentage("percentageOfNodesToScore", config.percentage_of_nodes_to_score, problems)
    for index, profile in enumerate(config.profiles):
        path = f"profiles[{index}].percentageOfNodesToScore"
        _check_percentage(path, profile.percentage_of_nodes_to_score or 0, problems)
    if config.pod_initial_backoff_s <= 0:
        problems.invalid("podInitialBackoffSeconds", config.pod_initial_backoff_s, "must be greater than 0")
    if config.pod_max_backoff_s < config.pod_initial_backoff_s:
        text = "must be greater than or equal to PodInitialBackoffSeconds"
        problems.invalid("podMaxBackoffSeconds", config.pod_max_backoff_s, text)


def check_leader_election(election: LeaderElection, path: str, problems: Problems) -> None:
    """Nothing is checked with leader election off, as upstream does. Also used for the command line's flags."""
    if not election.leader_elect:
        return
    durations = {
        "leaseDuration": election.lease_duration_s,
        "renewDeadline": election.renew_deadline_s,
        "retryPeriod": election.retry_period_s,
    }
    for name, duration_s in durations.items():
        if duration_s <= 0:
            problems.invalid(f"{path}.{name}", Shown(format_seconds(duration_s)), "must be greater than zero")
    if election.lease_duration_s <= election.renew_deadline_s:
        shown = Shown(format_seconds(election.lease_duration_s))
        problems.invalid(f"{path}.leaseDuration", shown, "must be greater than `RenewDeadline`")
    elif 0 < election.renew_deadline_s <= election.retry_period_s * RETRY_JITTER:
        shown = Shown(format_seconds(election.renew_deadline_s))
        problems.invalid(f"{path}.renewDeadline", shown, f"must be greater than `RetryPeriod` times {RETRY_JITTER}")
    if election.resource_lock != "leases":
        text = 'resourceLock value must be "leases"'
        problems.invalid(f"{path}.resourceLock", election.resource_lock, text)


def _check_percentage(path: str, percentage: int, problems: Problems) -> None:
    if not 0 <= percentage <= 100:
        problems.invalid(path, percentage, "not in valid range [0-100]")
