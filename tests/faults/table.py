"""Makes every fault, slow ones included, and writes what was seen to `docs/faults.md`.

Run by `make faults`; the status is 1 if any fault was not handled.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from itertools import groupby
from pathlib import Path

import pytest

from faults import datasets, long_runs, pictures
from faults.case import FAULTS, Fault, Place

REGISTERED = (pictures, datasets, long_runs)  # by importing them
COLUMNS = "| fault | expected | seen |\n| --- | --- | --- |\n"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"
HEAD = """# Faults

What goes wrong, what should happen, and what was seen when it was made to happen. `make faults`
makes every fault and writes this page; the quick ones are part of `make test` as well.

"""


def seen(fault: Fault) -> tuple[bool, str]:
    """Whether the fault was handled, and what was seen."""
    patch = pytest.MonkeyPatch()
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        try:
            return True, fault.run(Place(Path(folder), patch))
        except pytest.skip.Exception as reason:
            return True, f"not tried here: {reason}"
        except Exception:
            traceback.print_exc()
            return False, "**not handled**"
        finally:
            patch.undo()


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    failed = 0
    text = [HEAD]
    for group, faults in groupby(FAULTS.values(), key=lambda f: f.group):
        text += [f"## {group.capitalize()}\n\n", COLUMNS]
        for fault in faults:
            good, what = seen(fault)
            failed += not good
            sys.stderr.write(f"{'ok  ' if good else 'FAIL'} {fault.name}: {what}\n")
            text.append(f"| {cell(fault.name)} | {cell(fault.expected)} | {cell(what)} |\n")
        text.append("\n")
    PAGE.write_text("".join(text).rstrip() + "\n", encoding="utf-8")
    sys.stderr.write(f"{len(FAULTS)} faults, {failed} not handled\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
