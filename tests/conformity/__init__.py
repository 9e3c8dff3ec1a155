"""Tests of the differential run's results that need no Go: found cases, accepted differences, the generators."""
