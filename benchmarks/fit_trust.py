"""Fits the model behind `ranking.trust` on some data sets and judges it on others.

    python benchmarks/fit_trust.py --fit RUN... --judge RUN... --write src/sebra/ranking/trust.json

RUN is a folder that `sebra bench study trust DATA --out RUN` wrote, or a JSONL file of such rows.
Without --write the model in use is judged as it is, on all rows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, stats

from sebra.ranking.trust import FIGURES, combined


def rows_of(places: list[str]) -> pd.DataFrame:
    files = [Path(p) / "table.csv" if Path(p).is_dir() else Path(p) for p in places]
    return pd.concat([_read(file) for file in files], ignore_index=True)


def _read(file: Path) -> pd.DataFrame:
    return pd.read_json(file, lines=True) if file.suffix == ".jsonl" else pd.read_csv(file)


def fit(rows: pd.DataFrame) -> dict[str, Any]:
    """Factor and power of `combined` by least squares on Somers' D; data sets weigh alike."""
    agreement, reliability = (rows[k].to_numpy(float) for k in FIGURES)
    y = rows["somers_d"].to_numpy(float).clip(0, 1)
    weight = np.sqrt(1 / rows.groupby("data")["data"].transform("size").to_numpy(float))

    def misses(theta: Any) -> Any:
        return weight * (theta[0] * agreement.clip(0) * reliability ** theta[1] - y)

    factor, power = optimize.least_squares(misses, [1.0, 1.0], bounds=([0, 0], [2, 5])).x
    return {
        "weight": round(float(factor), 3),
        "power": round(float(power), 2),
        "fitted_on": sorted(rows["data"].unique()),
    }


def judge(rows: pd.DataFrame, model: dict[str, Any] | None) -> pd.DataFrame:
    """Rank correlation and mean error, per data set and over all."""
    rows = rows.assign(trust=[combined(dict(r), model) for _, r in rows.iterrows()])
    parts = [*rows.groupby("data"), ("all", rows)]
    return pd.DataFrame(
        {
            "data": name,
            "runs": len(part),
            "spearman": stats.spearmanr(part["trust"], part["somers_d"]).statistic,
            "mean_error": (part["trust"] - part["somers_d"].clip(0, 1)).abs().mean(),
        }
        for name, part in parts
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", nargs="*", default=[])
    parser.add_argument("--judge", nargs="+", required=True)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    model = fit(rows_of(options.fit)) if options.fit else None
    print(json.dumps(model))
    print(judge(rows_of(options.judge), model).round(3).to_string(index=False))
    if options.write is not None and model is not None:
        options.write.write_text(json.dumps(model, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
