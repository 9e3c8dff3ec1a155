"""Compare our answers to whole scheduling cases with recorded ones until the first unexplained difference."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path

from e2e.conformity.schedule_compare import schedule_difference
from e2e.conformity.schedule_rules import explain_schedule, upstream_gave_up
from scheduler.cli.conformity_schedule import run_schedule

BATCH = 25


def main(path: Path) -> int:
    """Exit code 1 and what differs first, else 0 and the number of cases."""
    count = 0
    with path.open(encoding="utf-8") as file:
        while batch := [json.loads(line) for line in islice(file, BATCH)]:
            lines = [json.dumps(entry["case"]).encode() for entry in batch]
            for entry, line in zip(batch, run_schedule(lines), strict=True):
                case, ours, theirs = entry["case"], json.loads(line), entry["upstream"]
                differs = {} if upstream_gave_up(theirs) else schedule_difference(ours, theirs)
                if differs and explain_schedule(case, ours, theirs) is None:
                    print(f"{case['name']}: {min(differs)}")
                    return 1
            count += len(batch)
    print(f"{count} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
