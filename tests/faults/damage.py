"""A data set of which some images are damaged in ten ways, and the same without them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from faults.case import QUICK, Place
from faults.pictures import POSTSCRIPT, float_with_nan, png
from sebra.samples.open import open_samples
from sebra_tools.data_check import describe


def pixels(seed: int, label: int) -> Image.Image:
    """The class shows in the brightness, and mostly in the colour as well."""
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 90, (24, 24, 3))
    table += 60 * label
    colour = label if rng.random() < 0.9 else 1 - label
    table[..., 2 * colour] += 100
    return Image.fromarray(table.astype(np.uint8))


def _half(kind: str) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        data = io.BytesIO()
        pixels(0, 0).save(data, kind)
        path.write_bytes(data.getvalue()[: len(data.getvalue()) // 2])

    return write


def _nan(path: Path) -> None:
    other = path.with_suffix(".tif")
    float_with_nan(other)
    other.replace(path)


WAYS: list[tuple[Callable[[Path], object], str]] = [
    (_half("PNG"), "truncated"),
    (_half("JPEG"), "truncated"),
    (lambda p: p.touch(), "empty file"),
    (lambda p: p.write_text("hello"), "not a readable image"),
    (lambda p: p.write_bytes(bytes(range(256)) * 4), "not a readable image"),
    (lambda p: p.write_text(POSTSCRIPT), "not a readable image"),
    (lambda p: p.write_bytes(png(20_000, 20_000)), "image too large"),
    (lambda p: p.symlink_to("nowhere"), "link to a file that is not there"),
    (os.mkfifo, "not a plain file"),
    (_nan, "pixels are NaN or infinite"),
]


def build(root: Path, n: int, damaged: int) -> dict[str, str]:
    """`all/` with n images, `damaged` of them so, and `good/` without those.

    Returns the ids of the damaged ones with their reasons.
    """
    bad: dict[str, str] = {}
    step = n // damaged
    for i in range(n):
        name = f"{('cat', 'dog')[i % 2]}/{i:05d}.png"
        for part in ("all", "good"):
            (root / part / name).parent.mkdir(parents=True, exist_ok=True)
        if i % step == 3 + i // step % 2:
            make, reason = WAYS[len(bad) % len(WAYS)]
            make(root / "all" / name)
            bad[name] = reason
        else:
            pixels(i, i % 2).save(root / "good" / name, compress_level=1)
            os.link(root / "good" / name, root / "all" / name)
    return bad


def check_damaged(place: Place, n: int, damaged: int, epochs: int) -> str:
    """The rest is ranked as if the damaged images were not there, and each has its reason."""
    bad = build(place.path, n, damaged)
    for part in ("all", "good"):
        done = place.run(
            "rank",
            place / part,
            *QUICK,
            "--set",
            f"epochs={epochs}",
            "--out",
            place / f"run-{part}",
        )
        assert done.status == 0, done.stderr
    found = pd.read_csv(place / "run-all" / "quarantine.csv").set_index("id")["reason"].to_dict()
    checked = describe(open_samples(str(place / "all")), deep=True)["faults"]
    assert {f["id"]: f["reason"] for f in checked} == found
    assert sorted(found) == sorted(bad)
    assert len(found) == damaged
    assert all(bad[name] in reason for name, reason in found.items())
    files = [(place / f"run-{part}" / "ranking.parquet").read_bytes() for part in ("all", "good")]
    assert files[0] == files[1]
    table = pd.read_parquet(place / "run-all" / "ranking.parquet")
    assert len(table) == n - damaged
    assert table["bucket"].nunique() > 1
    return f"{len(found)} set aside with the right reason, ranking of {len(table)} the same"
