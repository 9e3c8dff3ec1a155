"""Random schedules of faults against the real control plane, judged by the recorded history."""
