"""Hostile input: mutated objects through watch, state and decision, and coverage-guided fuzzing of every parser.

``make fuzz RUNS=n``; tests/hostile runs a short, seeded part. Never here: rules of scheduling.
"""
