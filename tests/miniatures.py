"""Tiny data sets in each form of DATA, written to a folder, for every test that needs one."""

from __future__ import annotations

import gzip
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int, size: tuple[int, int] = (24, 20), tint: int = 0) -> Image.Image:
    """A noisy picture; `tint` makes classes tell apart."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 120, (size[1], size[0], 3))
    pixels[..., tint % 3] += 120
    return Image.fromarray(pixels.astype(np.uint8))


def save(path: Path, seed: int, tint: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(seed, tint=tint).save(path)
    return path


def folder(root: Path, classes: tuple[str, ...] = ("cat", "dog"), n: int = 6) -> Path:
    """Class folders only."""
    for c, name in enumerate(classes):
        for i in range(n):
            save(root / name / f"{i:03d}.png", seed=100 * c + i, tint=c)
    return root


def split_folder(root: Path, classes: tuple[str, ...] = ("cat", "dog"), n: int = 6) -> Path:
    """train/, val/, test/ with class folders."""
    for s, split in enumerate(("train", "val", "test")):
        for c, name in enumerate(classes):
            for i in range(n):
                save(root / split / name / f"{i:03d}.jpg", seed=1000 * s + 100 * c + i, tint=c)
    return root


def manifest(root: Path, n: int = 12, kind: str = "csv") -> Path:
    """A table of images with two attributes, beside an `images` folder."""
    import pandas as pd

    rows = []
    for i in range(n):
        label = ("boat", "plane")[i % 2]
        save(root / "images" / f"{i}.png", seed=i, tint=i % 2)
        rows.append(
            {
                "path": f"images/{i}.png",
                "label": label,
                "split": ("train", "train", "train", "train", "val", "test")[i // 2 % 6],
                "water": "yes" if (i % 2 == 0) != (i % 8 == 0) else "no",
                "year": 2000 + i % 3,
            }
        )
    file = root / f"table.{kind}"
    table = pd.DataFrame(rows)
    table.to_csv(file, index=False) if kind == "csv" else table.to_parquet(file)
    return file


def text_manifest(root: Path, n: int = 8) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    lines = ["text,text_b,label,negation"]
    lines += [f'"a man, no. {i}",he is {i},{("yes", "no")[i % 2]},{i % 2}' for i in range(n)]
    file = root / "texts.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def features(n: int = 60, d: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    """Two classes with one strong and one weak cue, as arrays."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    cue = np.where(rng.random(n) < 0.9, y, 1 - y)
    x = rng.normal(size=(n, d)).astype(np.float32)
    x[:, 0] += 4 * cue
    x[:, 1] += y
    return {
        "X": x,
        "y": y,
        "split": np.repeat([0, 1, 2], [n - 2 * (n // 6), n // 6, n // 6]),
        "cue": cue,
    }


def npz(file: Path, **changes: np.ndarray) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **(features() | changes))
    return file


def array_folder(root: Path, **changes: np.ndarray) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, values in (features() | changes).items():
        np.save(root / f"{name}.npy", values)
    return root


def urbancars(root: Path, aligned: int = 6, conflicting: int = 2, held_out: int = 2) -> Path:
    words = ("urban", "country")
    places = {
        "train": "bg-0.95_co_occur_obj-0.95",
        "val": "bg-0.5_co_occur_obj-0.5",
        "test": "bg-0.5_co_occur_obj-0.5",
    }
    for split, version in places.items():
        for number, (car, ground, thing) in enumerate(product(words, repeat=3)):
            count = held_out
            if split == "train":
                count = aligned if car == ground == thing else conflicting
            name = f"obj-{car}_bg-{ground}_co_occur_obj-{thing}"
            for i in range(count):
                seed = 1000 * ("train", "val", "test").index(split) + 50 * number + i
                save(root / version / split / name / f"{i:03d}.jpg", seed, words.index(ground))
    return root


def bar(root: Path, n: int = 3) -> Path:
    for split in ("train", "test"):
        for c, name in enumerate(("climbing", "diving", "pole vaulting")):
            for i in range(n):
                save(root / split / f"{name}_{i}.jpg", seed=100 * c + i + 7 * len(split), tint=c)
    return root


def celeba(root: Path, per_group: int = 12, many: int = 60) -> Path:
    """All 8 groups with `per_group` images, the two all-aligned ones with `many`."""
    lines: list[str] = []
    for smiling, male, young in product((-1, 1), repeat=3):
        fits = (smiling, male, young) in {(1, -1, 1), (-1, 1, -1)}
        for _ in range(many if fits else per_group):
            name = f"{len(lines) + 1:06d}.jpg"
            save(root / "img_align_celeba" / name, seed=len(lines), tint=(male + 1) // 2)
            lines.append(f"{name} {-male} {male:2d} {smiling:2d} {young:2d}")
    header = [str(len(lines)), "Bald Male Smiling Young "]
    (root / "list_attr_celeba.txt").write_text("\n".join(header + lines) + "\n", encoding="utf-8")
    return root


def digits(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Blurry blobs that stand in for digits, and labels."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(n) % 10).astype(np.uint8)
    grey = np.zeros((n, 28, 28), np.uint8)
    for row, label in enumerate(labels):
        grey[row, 4 + label : 14 + label, 8:20] = rng.integers(120, 255, (10, 12))
    return grey, labels


def mnist(root: Path, train: int = 240, test: int = 40, zipped: bool = True) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for prefix, n in (("train", train), ("t10k", test)):
        grey, labels = digits(n)
        for name, array in (("images-idx3-ubyte", grey), ("labels-idx1-ubyte", labels)):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            data = header + array.tobytes()
            file = root / f"{prefix}-{name}{'.gz' if zipped else ''}"
            file.write_bytes(gzip.compress(data) if zipped else data)
    return root


def mnist_pictures(root: Path, per_digit: int = 12) -> Path:
    for split, n in (("train", per_digit), ("test", 3)):
        grey, labels = digits(10 * n)
        for row, label in enumerate(labels):
            place = root / split / str(label)
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(grey[row]).save(place / f"{row}.png")
    return root
