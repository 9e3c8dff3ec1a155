"""A small API server in memory, over real HTTP, for the demo and for tests.

Belongs here: storage with revisions, the rules of the API server that a scheduler can notice, the reactions of the
controllers it relies on, faults on demand, the pretended kubelet. Never: anything the scheduler itself needs, and no
shortcut around HTTP for the scheduler. Whatever this server claims about the API is checked by the same test on the
real API server (e2e/behaviour).

HTTP: server, handlers, calls, paths, listing, watch, rendering, tables, discovery, reviews, faults.
Rules: registry (the verbs), kinds, objects, defaults, validation, quantities, names, pods, claims, expressions, events,
deletion, patch and merge_keys, selectors, status. Data: store. Reactions: controllers, claim_controller, collection.
Invariants: records never change once stored; every write goes through the registry and takes one revision; nothing is
written between reading a record and storing its successor, since no rule awaits anything.
Known differences: unknown fields are kept instead of dropped, foreground deletion works as background deletion,
server-side apply, protobuf and OpenAPI are missing, workload kinds are stored but have no controllers.
"""

from __future__ import annotations

from scheduler.embedded.faults import Action, Audit, AuditEntry, Fault, FaultPlan
from scheduler.embedded.server import EmbeddedServer

__all__ = ["Action", "Audit", "AuditEntry", "EmbeddedServer", "Fault", "FaultPlan"]
