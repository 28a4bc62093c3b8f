"""Feeds damaged files to every reader until the time is up; a failing input is shown.

python -m fuzz.loop --seconds 300
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from fuzz.damages import contents
from fuzz.readers import READERS, outcome

BATCH = 200


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=300)
    end = time.monotonic() + options.parse_args().seconds
    os.environ["SEBRA_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    logging.disable()
    counts: Counter[tuple[str, str]] = Counter()
    failed: dict[str, str] = {}
    start = int(time.time())
    turn = 0
    while time.monotonic() < end:
        for name in READERS:
            if name not in failed and time.monotonic() < end:
                _batch(name, start + turn, counts, failed)
        turn += 1
    for name in READERS:
        read, refused = counts[name, "read"], counts[name, "refused"]
        state = "FAILED" if name in failed else "clean"
        sys.stderr.write(f"{name:18} {read:7d} read {refused:7d} refused  {state}\n")
    for name, text in failed.items():
        sys.stderr.write(f"\n{name} (seed from {start}):\n{text}\n")
    sys.stderr.write(f"{sum(counts.values())} inputs, {len(failed)} readers failed\n")
    return 1 if failed else 0


def _batch(
    name: str, number: int, counts: Counter[tuple[str, str]], failed: dict[str, str]
) -> None:
    reader = READERS[name]
    with tempfile.TemporaryDirectory() as folder:
        file = reader.write(Path(folder))

        @seed(number)
        @settings(
            max_examples=BATCH,
            database=None,
            deadline=None,
            derandomize=False,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(contents(file.read_bytes()))
        def check(data: bytes) -> None:
            counts[name, outcome(reader, file, data)] += 1

        try:
            check()
        except Exception:
            failed[name] = traceback.format_exc(limit=-6)


if __name__ == "__main__":
    sys.exit(main())
