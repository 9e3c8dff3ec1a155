"""dra-scheduler: the engine.

Packages, from the inside out: errors, api, config, cel, dra, state, framework, cycle, queue, explain, edge,
embedded, app, cli. Each may import only what stands before it; ``.importlinter`` holds these walls.
"""

__version__ = "0.1.0"
