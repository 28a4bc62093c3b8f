"""One door for every form of DATA."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sebra.errors import UsageError
from sebra.samples.layouts import LAYOUTS, find_layout
from sebra.samples.table import Content, FeatureArray, ImageFiles, Samples
from sebra.samples.validate import check_features, validate

_REMOTE = ("http", "https", "ftp", "s3", "gs", "gcs", "az", "abfs", "hdfs")
_NAMED = re.compile(r"(?P<name>[a-z][a-z0-9_-]+)(:(?P<path>[^?]*))?(\?(?P<query>.*))?")


def open_samples(data: str, attributes: Sequence[str] | None = None) -> Samples:
    """Reads DATA in any of its forms; nothing but names and tables is read, images stay closed.

    `attributes` picks attribute columns, strongest first. Layout options follow a question mark:
    `NAME:PATH?option=value`, `demo?biases=3`. Wrong data raises `UsageError`.
    """
    if not data:
        raise UsageError("DATA is empty: give a folder, a file or a layout such as demo")
    if "\0" in data:
        raise UsageError(f"{data!r:.100}: a file name cannot hold a NUL character")
    samples = validate(replace(_read(data), source=data))
    return samples if attributes is None else samples.with_attributes(attributes)


def read_unlabelled(data: str) -> tuple[npt.NDArray[np.object_], Content]:
    """Ids and contents of DATA; a table or an array needs no labels, nor two classes of them."""
    from sebra.samples.arrays import is_array_folder, read_rows
    from sebra.samples.files import ids_of, images_under, is_image
    from sebra.samples.manifest import manifest_of, read_contents

    table = manifest_of(data)
    if table is not None:
        return read_contents(*table)
    path = Path(data).expanduser()
    if is_array_folder(path) or (path.suffix.lower() == ".npz" and path.is_file()):
        values = read_rows(path)
        check_features(values, data)
        ids = np.array(list(map(str, range(len(values)))), dtype=object)
        return ids, FeatureArray(values, np.arange(len(values), dtype=np.int64))
    if path.is_file() and is_image(path.name):
        return np.array([path.name], dtype=object), ImageFiles((path.absolute(),))
    if path.is_dir():
        root = path.absolute()
        images = images_under(root)
        if not images:
            raise UsageError(f"{data}: no images found in the folder")
        return ids_of(images, root), ImageFiles(tuple(images))
    samples = open_samples(data)
    return samples.ids, samples.content


def _read(data: str) -> Samples:
    named = _NAMED.fullmatch(data)
    if named and named["name"] in LAYOUTS:
        bare = not find_layout(named["name"]).needs_path  # the name alone is a form of DATA
        if bare or named["path"] is not None:
            return _read_layout(named["name"], named["path"] or "", named["query"] or "")
    from sebra.samples.manifest import manifest_of, read_manifest

    table = manifest_of(data)
    if table is not None:
        return read_manifest(*table)
    path = Path(data).expanduser()
    if not path.exists():
        raise UsageError(_missing(data, named))
    if path.is_dir():
        from sebra.samples.arrays import is_array_folder, read_array_folder
        from sebra.samples.folder import read_folder

        return read_array_folder(path) if is_array_folder(path) else read_folder(path)
    if path.suffix.lower() == ".npz":
        from sebra.samples.arrays import read_npz

        return read_npz(path)
    raise UsageError(f"{data}: not a form of DATA (a folder, .csv, .parquet, .npz or NAME:PATH)")


def _read_layout(name: str, path: str, query: str) -> Samples:
    layout = find_layout(name)
    options = layout.parse(query)
    if not layout.needs_path:
        if path:
            raise UsageError(f"{name}:{path}: {name} takes no path")
        return layout.read(Path(), options)
    if not path:
        raise UsageError(_incomplete(name))
    if not layout.folder:  # a name, or a folder that is written as one
        if path.startswith(("./", "/", "~")):
            path = os.path.abspath(Path(path).expanduser())
        return layout.read(Path(path), options)
    folder = Path(path).expanduser()
    if not folder.exists():
        raise UsageError(f"{name}:{path}: no such folder")
    return layout.read(folder, options)


def _incomplete(name: str) -> str:
    if find_layout(name).folder:
        return f"{name}: give the folder of the data set, {name}:PATH"
    return f"{name}: give the name of the data set, {name}:ORG/NAME"


def _missing(data: str, named: re.Match[str] | None) -> str:
    if named and named["name"] in LAYOUTS:
        return _incomplete(named["name"])
    if "://" in data or (named and named["name"] in _REMOTE):
        return (
            f"{data}: data is read from this machine, or as hf:ORG/NAME from the Hugging Face hub; "
            "fetch it first (a mounted bucket is a folder like any other)"
        )
    if named and named["path"] is not None:
        return f"{data}: unknown layout {named['name']!r} (known: {', '.join(sorted(LAYOUTS))})"
    return f"{data}: no such file or folder"
