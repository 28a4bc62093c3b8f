"""What people hold in memory, as DATA: frames, arrays, torch and Hugging Face data sets, lists.

It is written once into the cache, named after its content, as a form of DATA that every command
reads: all kinds go the same way from there on, and a run can be repeated by its folder.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import numpy as np

from sebra.checksums import of_parts, of_table
from sebra.errors import UsageError, reason
from sebra.places import cache_root
from sebra.samples.files import SPLIT_NAMES, is_image
from sebra.samples.manifest import renamed
from sebra.samples.parquet import write_parquet
from sebra.whole import written

if TYPE_CHECKING:
    import pandas as pd

Columns = Mapping[str, str]  # our name of a column -> the data's own

KINDS = (
    "a folder or file by name, a pandas frame, (X, y), a list of (path, label), a torch or Hugging "
    "Face data set, or a dict of them by split"
)


def as_data(data: Any, columns: Columns | None = None) -> str:
    """DATA as the text that every command takes.

    Takes any of `KINDS`. X is a table of numbers, uint8 pictures (n x h x w x 3), image files or
    texts; a torch data set yields (x, y). One that knows its files (`.samples`, like torchvision's
    ImageFolder) is read from them, without its transform. columns: which column is the `label`,
    `text`, `path`, `id` or `split`, where it has another name, as `{"label": "species"}`.
    """
    columns = dict(columns or {})
    if isinstance(data, (str, os.PathLike)):
        text = os.fspath(data)
        if not columns:
            return text
        hub = text.startswith("hf:")
        own = {"image" if hub and k == "path" else k: v for k, v in columns.items()}
        return f"{text}{'&' if '?' in text else '?'}{urlencode(own)}"
    if hasattr(data, "save_to_disk"):
        return as_data(f"hf:{_store_hub(data)}", columns)
    values = _numbers(data)
    return _store_table(_frame(data, columns)) if values is None else _store_arrays(*values)


def _frame(data: Any, columns: Columns) -> pd.DataFrame:
    """One row per sample, with the columns of a manifest."""
    import pandas as pd

    if isinstance(data, pd.DataFrame):
        return _with_pictures(renamed(data.copy(), columns, "the frame"))
    if isinstance(data, Mapping) and data and all(str(k).lower() in SPLIT_NAMES for k in data):
        parts = [_of_split(_frame(part, columns), str(split)) for split, part in data.items()]
        return pd.concat(parts, ignore_index=True)
    if isinstance(data, tuple) and len(data) == 2:
        if isinstance(data[0], pd.DataFrame):
            return data[0].assign(label=np.asarray(data[1]))
        return _with_pictures(_pairs(zip(*data, strict=True)))
    if isinstance(getattr(data, "samples", None), list):
        return _files_frame(data)
    if isinstance(data, list) or (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        return _with_pictures(_pairs(_items(data), getattr(data, "classes", None)))
    raise UsageError(f"DATA: cannot read a {type(data).__name__}; give {KINDS}")


def _numbers(data: Any) -> tuple[Any, Any] | None:
    """X and y where the data is a plain table of numbers and its labels."""
    if isinstance(data, tuple) and len(data) == 2 and not hasattr(data[0], "columns"):
        if getattr(data[0], "ndim", 0) == 2:
            return np.asarray(data[0]), np.asarray(data[1])
        return None
    plain = hasattr(data, "__getitem__") and hasattr(data, "__len__") and len(data)
    if not plain or isinstance(data, Mapping) or hasattr(data, "features"):
        return None
    first = None if hasattr(data, "columns") else data[0]
    if not isinstance(first, (tuple, list)) or getattr(first[0], "ndim", 0) != 1:
        return None
    pairs = list(_items(data))
    x, y = np.stack([np.asarray(x) for x, _ in pairs]), [_plain(label) for _, label in pairs]
    names = getattr(data, "classes", None)
    return x, np.asarray(y if names is None else [names[i] for i in y])


def _items(data: Any) -> Iterable[tuple[Any, Any]]:
    for i in range(len(data)):
        item = data[i]
        if not isinstance(item, (tuple, list)) or len(item) < 2:
            raise UsageError(f"DATA: item {i} is a {type(item).__name__}, expected (x, label)")
        yield item[0], item[1]


def _pairs(pairs: Iterable[tuple[Any, Any]], names: Sequence[str] | None = None) -> pd.DataFrame:
    """Contents and labels as rows: files, texts, pairs of texts or pictures."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for x, label in pairs:
        y = _plain(label)
        row = {"label": names[y] if names is not None and isinstance(y, int) else y}
        if isinstance(x, str) and not is_image(x):
            row["text"] = x
        elif isinstance(x, (tuple, list)) and len(x) == 2 and isinstance(x[0], str):
            row |= {"text": x[0], "text_b": x[1]}
        else:
            row["path"] = x
        rows.append(row)
    return pd.DataFrame(rows)


def _files_frame(data: Any) -> pd.DataFrame:
    import pandas as pd

    paths = [Path(os.path.abspath(item[0])) for item in data.samples]
    labels = [data.classes[item[1]] for item in data.samples]
    root = Path(os.path.abspath(getattr(data, "root", os.path.commonpath(paths))))
    ids = [p.relative_to(root).as_posix() if p.is_relative_to(root) else str(p) for p in paths]
    return pd.DataFrame({"id": ids, "path": list(map(str, paths)), "label": labels})


def _of_split(table: pd.DataFrame, split: str) -> pd.DataFrame:
    """The rows of one split; those without an id of their own are numbered."""
    named = table if "id" in table else table.assign(id=[f"{split}/{i}" for i in range(len(table))])
    return named.assign(split=split)


def _with_pictures(table: pd.DataFrame) -> pd.DataFrame:
    """Files by their absolute path, their ids as they were given; pictures in memory as files."""
    if "path" not in table:
        return table
    named = "id" in table
    paths, ids = [], table["id"].tolist() if named else []
    for row, given in enumerate(table["path"]):
        file = isinstance(given, (str, os.PathLike))
        paths.append(os.path.abspath(given) if file else _kept(_png(given), ".png"))
        if not named:
            ids.append(os.fspath(given) if file else str(row))
    return table.assign(path=paths, id=ids)


def _plain(label: Any) -> Any:
    """A label as Python has it: a tensor's or array's number."""
    return label.item() if hasattr(label, "item") else label


def _png(picture: Any) -> bytes:
    """A picture in memory as a file: nothing of it is lost."""
    from PIL import Image

    if not isinstance(picture, Image.Image):
        picture = Image.fromarray(_pixels(np.asarray(picture)))
    out = io.BytesIO()
    picture.save(out, "PNG", compress_level=1)
    return out.getvalue()


def _pixels(values: Any) -> Any:
    if values.ndim == 3 and values.shape[0] in (1, 3) and values.shape[2] not in (1, 3):
        values = values.transpose(1, 2, 0)  # as torch has pictures
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if values.dtype.kind == "f" and values.size and values.min() >= 0 and values.max() <= 1:
        values = np.round(values * 255).astype(np.uint8)
    if values.dtype != np.uint8 or values.ndim not in (2, 3):
        raise UsageError(
            f"DATA: a picture has type {values.dtype} and shape {values.shape}; give uint8, or "
            "floats from 0 to 1 (leave out a transform that normalises)"
        )
    return np.ascontiguousarray(values)


def _home() -> Path:
    return cache_root() / "objects"


def _kept(data: bytes, suffix: str) -> str:
    """The file that holds these bytes, written if it is not there."""
    name = of_parts([data])
    path = _home() / name[:2] / f"{name}{suffix}"
    if not path.exists():
        with written(path) as (passing,):
            passing.write_bytes(data)
    return str(path)


def _store_table(table: pd.DataFrame) -> str:
    table = table.rename(columns=str)
    path = _home() / of_table(table) / "data.parquet"
    if not path.exists():
        try:
            write_parquet(path, table)
        except (TypeError, ValueError) as error:  # pyarrow's, of a column of mixed types
            raise UsageError(f"DATA: a column cannot be stored ({reason(error)})") from None
    return str(path)


def _store_hub(data: Any) -> Path:
    """The folder of a Hugging Face data set, or of several by split, as the library writes it."""
    parts = data if isinstance(data, Mapping) else {"train": data}
    folder = _home() / of_parts([f"{k} {v._fingerprint}" for k, v in parts.items()]) / "data"
    if not folder.exists():
        passing = folder.with_name(f".{os.getpid()}.tmp")
        data.save_to_disk(str(passing))
        passing.rename(folder)
    return folder


def _store_arrays(x: Any, y: Any) -> str:
    if x.dtype.kind not in "fiub":
        raise UsageError(f"DATA: X must hold numbers, has type {x.dtype}")
    y = y.astype(str) if y.dtype == object else y
    arrays = {"X": np.ascontiguousarray(x), "y": np.ascontiguousarray(y)}
    kinds = [f"{a.dtype} {a.shape}" for a in arrays.values()]
    folder = _home() / of_parts([*kinds, *(a.tobytes() for a in arrays.values())]) / "data"
    if not (folder / "X.npy").exists():
        with written(*(folder / f"{name}.npy" for name in arrays)) as passing:
            for file, array in zip(passing, arrays.values(), strict=True):
                with file.open("wb") as out:
                    np.save(out, array, allow_pickle=False)
    return str(folder)
