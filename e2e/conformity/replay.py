"""Compare our answers with upstream's recorded ones until the first unexplained difference (see mutants)."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path

from e2e.conformity.run import answer, unexplained

BATCH = 100


def main(path: Path) -> int:
    """Exit code 1 and the case's name at the first difference, else 0 and the number of cases."""
    count = 0
    with path.open(encoding="utf-8") as file:
        while batch := [json.loads(line) for line in islice(file, BATCH)]:
            for kind in ("allocate", "cel"):
                entries = [entry for entry in batch if entry["kind"] == kind]
                ours = answer(kind, [entry["case"] for entry in entries])
                for entry, our in zip(entries, ours, strict=True):
                    if unexplained(kind, entry["case"], our, entry["upstream"]):
                        print(entry["case"]["name"])
                        return 1
            count += len(batch)
    print(f"{count} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
