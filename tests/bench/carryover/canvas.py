"""A folder of small random pictures with texture, as a canvas for planting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def pictures(folder: Path, classes=("cat", "dog"), train=20, test=8, side=48) -> Path:
    rng = np.random.default_rng(0)
    for split, n in (("train", train), ("test", test)):
        for name in classes:
            (folder / split / name).mkdir(parents=True)
            for i in range(n):
                pixels = rng.integers(40, 216, (side, side, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{i}.png")
    return folder


def texts(file: Path, n=40) -> Path:
    rows = ["text,label,split"]
    for i in range(n):
        split = "test" if i % 4 == 0 else "train"
        rows.append(f"a sentence with number {i} in it,{'odd' if i % 8 > 3 else 'even'},{split}")
    file.write_text("\n".join(rows), encoding="utf-8")
    return file
