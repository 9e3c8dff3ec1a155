"""Kubernetes objects as small frozen Structs, and the rules that need nothing but an object.

Belongs here: field names, quantities, label and node selectors, tolerations, Pod requests, claim naming, request
bodies. This is the only package that knows how the API spells a field.
Never here: caches, decisions, I/O.
"""
