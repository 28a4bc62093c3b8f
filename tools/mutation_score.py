"""Share of the changed formulas that the tests noticed, from mutmut's figures.

    python tools/mutation_score.py build/mutation/mutants/mutmut-cicd-stats.json [85]

A change that made the tests run for ever counts as noticed. The status is 1 below the percentage
asked for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

LEAST = 85.0


def main() -> int:
    stats = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    least = float(sys.argv[2]) if len(sys.argv) > 2 else LEAST
    noticed, total = stats["killed"] + stats["timeout"], stats["total"]
    share = 100 * noticed / total if total else 0.0
    sys.stdout.write(
        f"{noticed} of {total} changes noticed: {share:.1f} % (at least {least:g} %)\n"
    )
    return 0 if share >= least else 1


if __name__ == "__main__":
    sys.exit(main())
