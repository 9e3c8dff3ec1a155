"""The error tree. "Does not fit" is never an exception: rejections are values (framework.reasons).

SchedulerError
├─ UserError        their object is wrong; not retried until it changes
├─ ClusterError     the world is in the way; retried with delay
├─ PluginError      a plugin broke its contract; costs the Pod its attempt
├─ ConfigError      the configuration is wrong; the process does not start
└─ InternalError    our bug; carries the story that led to it
"""

from __future__ import annotations

from collections.abc import Sequence


class SchedulerError(Exception):
    """Base of every error that dra-scheduler raises on purpose."""


class UserError(SchedulerError):
    """An object that a user wrote cannot be used as it is.

    ``subject`` names the object (kind namespace/name), ``field`` the path inside it, ``problem`` what is wrong.
    """

    def __init__(self, subject: str, field: str, problem: str) -> None:
        self.subject, self.field, self.problem = subject, field, problem
        super().__init__(f"{subject}: {field}: {problem}" if field else f"{subject}: {problem}")


class ClusterError(SchedulerError):
    """The API server or another actor is in the way; the same call may work later."""


class PluginError(SchedulerError):
    """A plugin raised, answered outside its contract, or reported an error.

    ``plugin`` is its name, ``point`` the extension point, ``node`` the node it was asked about ("" if none). The text
    names all three; ``worded`` takes a text that does so already, in kube-scheduler's own form.
    """

    def __init__(self, plugin: str, point: str, problem: str, node: str = "") -> None:
        self.plugin, self.point, self.problem, self.node = plugin, point, problem, node
        where = f" on node {node}" if node else ""
        super().__init__(f'running {point} plugin "{plugin}"{where}: {problem}')

    @classmethod
    def worded(cls, plugin: str, point: str, text: str, node: str = "") -> PluginError:
        """An error whose whole text is ``text``."""
        made = cls(plugin, point, text, node)
        made.args = (text,)
        return made


class ConfigError(SchedulerError):
    """The configuration cannot be used; ``path`` is the field, for example ``profiles[0].schedulerName``."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path}: {problem}" if path else problem)


class InternalError(SchedulerError):
    """An invariant does not hold: our bug. ``story`` lists the records that led here, oldest first."""

    def __init__(self, problem: str, story: Sequence[str] = ()) -> None:
        self.problem, self.story = problem, tuple(story)
        super().__init__("\n  ".join([problem, *self.story]))
