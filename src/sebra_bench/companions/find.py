"""The sets that are measured beside ImageNet's own: ImageNet-W, ImageNet-9 and ImageNet-R."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sebra.errors import UsageError
from sebra.samples.files import ids_of, images_in, require_folder, subfolders
from sebra.samples.table import SPLITS, ImageFiles, IntArray, Samples
from sebra_bench.layouts.imagenet import CARTON, ImagenetOptions, chosen_classes
from sebra_bench.layouts.synsets import is_synset, synsets_in

MAPPING = "in_to_in9.json"
VARIANTS = ("mixed_same", "mixed_rand")
ALL_CLASSES = 1000


@dataclass(frozen=True)
class Mark:
    """ImageNet-W: the mark that every picture gets; empty means as published."""

    text: str
    font: str


@dataclass(frozen=True)
class ImageNet9:
    """Pictures of 9 superclasses on a background of the same and of a random superclass.

    `answers[c]` is the superclass of class `c` of ImageNet, -1 where it has none.
    """

    mixed_same: Samples
    mixed_rand: Samples
    answers: IntArray


@dataclass(frozen=True)
class Companions:
    """What the options of `imagenet:` ask for; None where they do not."""

    carton: str
    mark: Mark | None = None
    in9: ImageNet9 | None = None
    inr: Samples | None = None  # its classes are those of ImageNet that it shows


def companions(path: Path, options: ImagenetOptions) -> Companions | None:
    """The companions, their folders listed and checked; None where none is asked for."""
    if not (options.w or options.in9 or options.inr):
        return None
    root = require_folder(path, "imagenet")
    classes = chosen_classes(root, options)
    if options.carton not in classes and options.carton != CARTON:
        raise UsageError(f"imagenet: carton: {options.carton!r} is no class of {root}")
    return Companions(
        carton=options.carton,
        mark=Mark(options.text, options.font) if options.w else None,
        in9=_imagenet9(_folder(options.in9), root, classes) if options.in9 else None,
        inr=_imagenet_r(_folder(options.inr), classes) if options.inr else None,
    )


def _folder(text: str) -> Path:
    return require_folder(Path(text).expanduser(), "imagenet")


def _imagenet_r(folder: Path, classes: tuple[str, ...]) -> Samples:
    shown = [synset for synset in synsets_in(folder, "imagenet: inr") if synset in classes]
    if len(shown) < 2:
        raise UsageError(
            f"imagenet: inr: {folder} shares {len(shown)} classes with the data, needs at least 2"
        )
    return _pictures(folder, tuple(shown), f"imagenet-r:{folder}")


def _imagenet9(folder: Path, root: Path, classes: tuple[str, ...]) -> ImageNet9:
    answers = _answers(folder, root, classes)
    same, rand = (_variant(folder / name, answers) for name in VARIANTS)
    if same.classes != rand.classes:
        raise UsageError(f"imagenet: in9: {' and '.join(VARIANTS)} have other superclasses")
    return ImageNet9(same, rand, answers)


def _variant(folder: Path, answers: IntArray) -> Samples:
    """The pictures whose superclass the model can answer, labelled as in the published order."""
    inner = folder / "val"
    place = require_folder(inner if inner.is_dir() else folder, "imagenet: in9")
    samples = _pictures(place, tuple(subfolders(place)), f"imagenet-9:{folder}")
    answerable = np.isin(samples.labels, answers)
    if not answerable.any():
        raise UsageError(f"imagenet: in9: no class of the data belongs to a superclass of {place}")
    return samples.take(np.flatnonzero(answerable))


def _answers(folder: Path, root: Path, classes: tuple[str, ...]) -> IntArray:
    """The superclass number of each class, from the published mapping."""
    file = folder / MAPPING
    if not file.is_file():
        raise UsageError(f"imagenet: in9: {file} is missing (it comes with ImageNet-9's code)")
    try:
        mapping = {str(key): int(value) for key, value in json.loads(file.read_bytes()).items()}
    except (ValueError, TypeError, AttributeError):
        raise UsageError(f"imagenet: in9: {file} must map classes to superclass numbers") from None
    if not all(is_synset(key) for key in mapping):
        every = synsets_in(root / "train", "imagenet")
        if len(every) != ALL_CLASSES:
            raise UsageError(
                f"imagenet: in9: {file} numbers the {ALL_CLASSES} classes of ImageNet, but "
                f"{root / 'train'} has {len(every)}; use synsets as its keys instead"
            )
        mapping = {synset: mapping.get(str(i), -1) for i, synset in enumerate(every)}
    return np.array([mapping.get(synset, -1) for synset in classes], dtype=np.int64)


def _pictures(folder: Path, classes: tuple[str, ...], source: str) -> Samples:
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        images = images_in(folder / name)
        paths += [folder / name / image for image in images]
        labels += [label] * len(images)
    if not paths:
        raise UsageError(f"imagenet: {folder} has no images in class folders")
    return Samples(
        ids=ids_of(paths, folder),
        labels=np.array(labels, dtype=np.int64),
        classes=classes,
        split=np.full(len(paths), SPLITS.index("test"), dtype=np.int8),
        content=ImageFiles(tuple(paths)),
        source=source,
    )
