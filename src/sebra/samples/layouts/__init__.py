"""The published layouts, by name. A layout's module is imported only when it is used."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from sebra.errors import UsageError
from sebra.samples.table import Samples


@dataclass(frozen=True)
class Entry:
    """What is known of a layout before its module is imported."""

    module: str
    summary: str
    needs_path: bool = True
    folder: bool = True  # whether the path is a folder's and must be there


LAYOUTS: dict[str, Entry] = {
    "bar": Entry(
        "sebra.samples.layouts.bar",
        "Biased Action Recognition: train/ and test/ with names like climbing_12.jpg",
    ),
    "celeba": Entry(
        "sebra.samples.layouts.celeba",
        "CelebA (img_align_celeba/, list_attr_celeba.txt): Smiling, biased by Male and Young",
    ),
    "cmnist": Entry(
        "sebra.samples.layouts.cmnist",
        "Colored MNIST, painted from the standard IDX files or from PNG folders",
    ),
    "demo": Entry(
        "sebra.samples.layouts.demo",
        "the built-in set of generated pictures with known biases; needs no download",
        needs_path=False,
    ),
    "hf": Entry(
        "sebra.samples.hub",
        "a Hugging Face data set of images or texts, hf:ORG/NAME (extra hub)",
        folder=False,
    ),
    "imagenet": Entry(
        "sebra.samples.layouts.imagenet",
        "ImageNet-1K or a part of it (synset folders); with ImageNet-W, -9 and -R beside it",
    ),
    "living17": Entry(
        "sebra.samples.layouts.living17",
        "Living17 (BREEDS): 17 kinds of animals out of a copy of ImageNet, by subpopulation",
    ),
    "multinli": Entry(
        "sebra.samples.layouts.multinli",
        "MultiNLI (multinli_1.0_*.jsonl): sentence pairs, biased by negation words",
    ),
    "sick": Entry(
        "sebra.samples.layouts.sick",
        "SICK 2014 (SICK_train.txt, …): sentence pairs, biased by negation words",
    ),
    "urbancars": Entry(
        "sebra.samples.layouts.urbancars",
        "UrbanCars: cars with a biased background and a biased co-occurring object",
    ),
    "waterbirds": Entry(
        "sebra.samples.layouts.waterbirds",
        "Waterbirds (metadata.csv): land and water birds, biased by the place behind them",
    ),
}


@dataclass(frozen=True)
class NoOptions:
    """For a layout that has none."""


@dataclass(frozen=True)
class Layout:
    """A reader with its options: a frozen dataclass whose defaults give names and types."""

    name: str
    options: type[Any]
    read: Callable[[Path, Any], Samples]

    def parse(self, query: str) -> Any:
        """The options given as `a=1&b=2`, checked."""
        known = {field.name: field for field in dataclasses.fields(self.options)}
        values: dict[str, Any] = {}
        for name, text in parse_qsl(query, keep_blank_values=True):
            if name not in known:
                names = ", ".join(known) or "none"
                raise UsageError(f"{self.name}: unknown option {name!r} (known: {names})")
            values[name] = _convert(self.name, name, text, known[name].default)
        return self.options(**values)


def layout(
    name: str, options: type[Any] = NoOptions
) -> Callable[[Callable[[Path, Any], Samples]], Layout]:
    """Makes a `Layout` of a function `read(path, options) -> Samples`."""

    def wrap(read: Callable[[Path, Any], Samples]) -> Layout:
        return Layout(name, options, read)

    return wrap


def find_layout(name: str) -> Layout:
    """The layout of this name, imported now."""
    found = importlib.import_module(LAYOUTS[name].module).read
    assert isinstance(found, Layout)
    return found


def _convert(layout_name: str, name: str, text: str, default: Any) -> Any:
    kind = type(default)
    try:
        return kind(text)
    except ValueError:
        wanted = {int: "a whole number", float: "a number"}.get(kind, kind.__name__)
        raise UsageError(f"{layout_name}: option {name} must be {wanted}, not {text!r}") from None
