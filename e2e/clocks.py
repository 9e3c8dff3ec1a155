"""The clocks of a child process, moved while it runs."""

from __future__ import annotations

import shutil
from pathlib import Path

_SHIFT = Path(__file__).parent / "clockshift" / "sitecustomize.py"


class Clocks:
    """``folder`` has to be on the child's Python path (``python_path``); it is made."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(_SHIFT, folder)
        self.folder = folder
        self._offsets = folder / "offsets"

    def move(self, wall_s: float, boot_s: float) -> None:
        """From now on the wall clock and the clock since boot are ahead by so much."""
        new = self._offsets.with_suffix(".new")
        new.write_text(f"{wall_s} {boot_s}")
        new.replace(self._offsets)
