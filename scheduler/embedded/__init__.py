"""A small API server in memory, over real HTTP, for the demo and for tests.

Belongs here: storage with revisions, the rules of the API server that a scheduler can notice, the reactions of the
controllers it relies on, faults on demand, the pretended kubelet. Never: anything the scheduler itself needs, and no
shortcut around HTTP for the scheduler. Whatever this server claims about the API is checked by the same test on the
real API server.
"""

from __future__ import annotations

from scheduler.embedded.faults import Action, Audit, AuditEntry, Fault, FaultPlan
from scheduler.embedded.server import EmbeddedServer

__all__ = ["Action", "Audit", "AuditEntry", "EmbeddedServer", "Fault", "FaultPlan"]
