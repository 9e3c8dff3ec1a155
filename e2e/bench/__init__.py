"""Measures dra-scheduler and kube-scheduler side by side on a fresh real control plane per run.

``python -m e2e.bench --help`` lists workloads and sizes; ``python -m e2e.bench.devices`` measures device allocation
alone. No time measured here decides any test.
"""
