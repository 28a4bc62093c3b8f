"""Tiny data sets in each form of DATA, written to a folder, for every test that needs one."""

from __future__ import annotations

import gzip
import json
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


def waterbirds(root: Path, aligned: int = 6, conflicting: int = 2, held_out: int = 2) -> Path:
    lines = ["img_id,img_filename,y,split,place,place_filename"]
    for split, bird, place in product(range(3), range(2), range(2)):
        count = held_out if split else (aligned if bird == place else conflicting)
        for _ in range(count):
            number = len(lines)
            name = f"{bird:03d}.Bird_{bird}/Bird_{bird}_{number:04d}.jpg"
            save(root / name, seed=number, tint=place)
            scene = ("/b/bamboo_forest/0001.jpg", "/o/ocean/0001.jpg")[place]
            lines.append(f"{number},{name},{bird},{split},{place},{scene}")
    (root / "metadata.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


SYNSETS = ("n01443537", "n02056570", "n02971356", "n07753592")  # goldfish, penguin, carton, banana


def motif(kind: int, seed: int, side: int = 64) -> Image.Image:
    """Noise with a coloured sign, whose place and colour belong to its kind."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 110, (side, side, 3))
    hue = np.array([(220, 60, 40), (40, 70, 220), (60, 190, 60), (220, 200, 40)][kind % 4])
    third = side // 3
    column = (kind // 2) % 2 * (side - third)
    pixels[-third:, column : column + third] = hue * rng.uniform(0.7, 1)
    return Image.fromarray(pixels.astype(np.uint8))


def synset_folder(root: Path, synsets: tuple[str, ...], n: int, first_seed: int = 0) -> Path:
    """One folder of `n` pictures for each synset."""
    for kind, synset in enumerate(synsets):
        (root / synset).mkdir(parents=True, exist_ok=True)
        for i in range(n):
            picture_ = motif(kind, seed=first_seed + 1000 * kind + i)
            picture_.save(root / synset / f"{synset}_{i}.JPEG", quality=95)
    return root


def imagenet(root: Path, train: int = 12, val: int = 6) -> Path:
    synset_folder(root / "train", SYNSETS, train)
    synset_folder(root / "val", SYNSETS, val, first_seed=500)
    return root


def imagenet_r(root: Path, n: int = 4) -> Path:
    """Drawings of two of the classes."""
    return synset_folder(root, SYNSETS[:2], n, first_seed=70_000)


def imagenet_9(root: Path, n: int = 4) -> Path:
    """Two superclasses: fish and bird; carton and banana have none."""
    for v, variant in enumerate(("mixed_same", "mixed_rand")):
        for kind, name in enumerate(("00_fish", "01_bird")):
            place = root / variant / "val" / name
            place.mkdir(parents=True, exist_ok=True)
            for i in range(n):
                motif(kind, seed=90_000 + 1000 * v + 100 * kind + i).save(place / f"fg_{i}.JPEG")
    mapping = dict(zip(SYNSETS, (0, 1, -1, -1), strict=True))
    (root / "in_to_in9.json").write_text(json.dumps(mapping), encoding="utf-8")
    return root


def living17(root: Path, train: int = 2, val: int = 1) -> Path:
    from sebra_bench.layouts.living17 import subpopulations

    for number, part in enumerate(subpopulations()):
        for split, n in (("train", train), ("val", val)):
            for i in range(n):
                name = f"{part.synset}_{i}.JPEG"
                seed = 100 * number + 10 * len(split) + i
                save(root / split / part.synset / name, seed, tint=number // 4)
    return root


def sentence_pairs(n: int, split: int = 0) -> list[tuple[str, str, str]]:
    """First sentence, second sentence, judgement: negation goes with contradiction, mostly."""
    rng = np.random.default_rng(split)
    who, what = ("man", "woman", "boy", "dog"), ("playing", "running", "sleeping", "eating")
    rows = []
    for i in range(n):
        label = ("entailment", "neutral", "contradiction")[i % 3]
        one, act = who[rng.integers(4)], what[rng.integers(4)]
        other = what[(what.index(act) + 1 + rng.integers(3)) % 4]
        usual = rng.random() < 0.8
        second = {
            "entailment": f"the {one} is {act}" if usual else f"no {one} is not {act}",
            "neutral": f"the {one} is {act} outside" if usual else f"a {one} is not {other}",
            "contradiction": f"the {one} is not {act}" if usual else f"the {one} is {other}",
        }[label]
        rows.append((f"a {one} is {act}", second, label))
    return rows


def sick(root: Path, n: int = 48) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    names = ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt")
    for split, name in enumerate(names):
        lines = ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"]
        for i, (a, b, label) in enumerate(sentence_pairs(n, split)):
            lines.append(f"{1000 * split + i}\t{a}\t{b}\t3.5\t{label.upper()}")
        end = "\r\n" if split == 2 else "\n"  # as published
        (root / name).write_text(end.join(lines) + end, encoding="utf-8", newline="")
    return root


def multinli(root: Path, n: int = 48) -> Path:
    import json

    root.mkdir(parents=True, exist_ok=True)
    for split, name in enumerate(("train", "dev_matched", "dev_mismatched")):
        rows = sentence_pairs(n, split)
        rows[-1] = (*rows[-1][:2], "-")
        lines = [
            json.dumps({"gold_label": c, "sentence1": a, "sentence2": b, "pairID": f"{i}{c[0]}"})
            for i, (a, b, c) in enumerate(rows)
        ]
        file = root / f"multinli_1.0_{name}.jsonl"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


def five_of_bar(root: Path) -> Path:
    """Enough pictures that a fifth of a class can be held out."""
    return bar(root, n=5)


# The image layouts that need a folder, as the tests and the pages of docs/datasets show them.
IMAGE_LAYOUTS = {
    "bar": five_of_bar,
    "celeba": celeba,
    "cmnist": mnist,
    "imagenet": imagenet,
    "living17": living17,
    "urbancars": urbancars,
    "waterbirds": waterbirds,
}
