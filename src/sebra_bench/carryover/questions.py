"""Questions to data that people have: SICK's sentences by length or source, CelebA's attributes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sebra.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

SICK_FILES = ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt")
SHORT, LONG = 7, 11  # words: up to this many, from this many on
# Pairs are numbered source by source: descriptions of videos stand between captions of photos.
VIDEOS = range(1300, 5800)
PHOTOS = (range(1100), range(6000, 20_000))
PER_CLASS = (700, 300)  # training and test samples
CELEBA_TEST_SHARE = 0.35
CELEBA_MOST = 4500


def sick_by_length(folder: Path, out: Path) -> str:
    """Short or long sentence: a question that has its answer in the text itself."""
    table = _sentences(folder)
    words = table["text"].map(lambda text: len(text.split()))
    label = np.where(words <= SHORT, "short", np.where(words >= LONG, "long", ""))
    return _write_texts(table.assign(label=label), out)


def sick_by_source(folder: Path, out: Path) -> str:
    """Caption of a photo or description of a video."""
    table = _sentences(folder)
    photo = np.logical_or.reduce([table["pair"].isin(part) for part in PHOTOS])
    label = np.where(table["pair"].isin(VIDEOS), "video", np.where(photo, "photo", ""))
    return _write_texts(table.assign(label=label), out)


def pets_by_species(folder: Path, out: Path) -> str:
    """Cat or dog, of twelve breeds; the names of cats begin with a capital letter."""
    import pandas as pd

    from sebra.samples.open import open_samples
    from sebra.samples.table import SPLITS, ImageFiles

    samples = open_samples(str(folder))
    assert isinstance(samples.content, ImageFiles)
    species = np.array(["cat" if name[0].isupper() else "dog" for name in samples.classes])
    table = pd.DataFrame(
        {
            "id": samples.ids,
            "path": [str(path) for path in samples.content.paths],
            "label": species[samples.labels],
            "split": np.array(SPLITS)[samples.split],
        }
    )
    return _write(table, out)


def celeba_question(folder: Path, target: str, attribute: str, out: Path) -> str:
    """One attribute as the label, another as what goes with it by nature; drawn once for all."""
    import pandas as pd

    file = folder / "list_attr_celeba.txt"
    if not file.is_file():
        raise UsageError(f"{file}: no such file; the set needs CelebA's attributes")
    table = pd.read_csv(file, sep=r"\s+", skiprows=1)
    paths = [str(folder / "img_align_celeba" / str(name)) for name in table.index]
    rng = np.random.default_rng(0)
    split = np.where(rng.random(len(table)) < CELEBA_TEST_SHARE, "test", "train")
    found = pd.DataFrame(
        {
            "id": table.index,
            "path": paths,
            "label": np.where(table[target] > 0, target, f"no {target}"),
            "split": split,
            attribute: np.where(table[attribute] > 0, "yes", "no"),
        }
    )
    return _write(found.sample(min(CELEBA_MOST, len(found)), random_state=0).sort_index(), out)


def _sentences(folder: Path) -> pd.DataFrame:
    """Every sentence once, with the number of the first pair it is in."""
    import pandas as pd

    missing = [name for name in SICK_FILES if not (folder / name).is_file()]
    if missing:
        raise UsageError(f"{folder / missing[0]}: no such file; the set needs SICK's three files")
    pairs = pd.concat([pd.read_csv(folder / name, sep="\t", quoting=3) for name in SICK_FILES])
    pairs = pairs.sort_values("pair_ID")
    both = [
        pd.DataFrame({"pair": pairs["pair_ID"], "text": pairs[f"sentence_{side}"]}) for side in "AB"
    ]
    return pd.concat(both).sort_values("pair", kind="stable").drop_duplicates("text")


def _write_texts(table: pd.DataFrame, out: Path) -> str:
    """The same number of each class, drawn once for all; who has no label is left out."""
    import pandas as pd

    train, test = PER_CLASS
    parts = []
    for label, rows in table[table["label"] != ""].groupby("label"):
        drawn = rows.sample(min(train + test, len(rows)), random_state=0)
        first = round(len(drawn) * train / (train + test))
        parts.append(
            drawn.assign(
                label=label, split=np.repeat(["train", "test"], [first, len(drawn) - first])
            )
        )
    found = pd.concat(parts).reset_index(drop=True)
    return _write(found[["text", "label", "split"]], out)


def _write(table: Any, out: Path) -> str:
    out.parent.mkdir(parents=True, exist_ok=True)
    passing = out.with_suffix(f".{os.getpid()}.tmp")
    table.to_csv(passing, index=False)
    os.replace(passing, out)  # a reader sees a whole table or none
    return str(out)
