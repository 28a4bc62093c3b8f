"""`hf:ORG/NAME`: a Hugging Face data set, streamed once into the cache.

The entry is a folder with a table in parquet shards and, of images, the encoded files as they came.
It is written row by row under a temporary name and renamed when it is complete.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sebra.checksums import of_file, of_json, of_parts
from sebra.errors import UsageError, reason
from sebra.places import cache_root, offline
from sebra.samples.files import SPLIT_NAMES
from sebra.samples.layouts import layout
from sebra.samples.manifest import samples_of
from sebra.samples.parquet import read_parquet
from sebra.samples.table import SPLITS, Samples
from sebra_bench.layouts.hub_columns import Columns, choose_columns, parse_row

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?")
FORMAT_VERSION = 2  # raise it when the same data set would be stored in another way
SHARD_ROWS = 4096
FOLDER_FILES = 1000
Streams = Mapping[str, Any]


@dataclass(frozen=True)
class Options:
    """Which part of the data set, and which columns mean what; empty is found out.

    config: the configuration's name. revision: a commit or tag. train, val, test: the data set's
    own names of the splits. image, text, text_b, label: columns. limit: rows per split, 0 for all.
    """

    config: str = ""
    revision: str = ""
    train: str = ""
    val: str = ""
    test: str = ""
    image: str = ""
    text: str = ""
    text_b: str = ""
    label: str = ""
    limit: int = 0


@layout(
    "hf",
    "a Hugging Face data set of images, texts or numbers, hf:ORG/NAME (extra hub)",
    Options,
    folder=False,
)
def read(path: Path, options: Options) -> Samples:
    """Any data set of the hub; beside images or texts, columns of few values become attributes."""
    name = path.as_posix()
    _require_name(name)
    entry = cache_root() / "hub" / _key(name, options)
    if not _is_whole(entry):
        _fetch(name, options, entry)
    return _read_shards(entry, f"hf:{name}")


def _require_name(name: str) -> None:
    """A name of the hub, or a folder by its absolute path; a name never means a folder."""
    if os.path.isabs(name):
        if not os.path.isdir(name):
            raise UsageError(f"hf:{name}: no such folder")
        return
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"hf:{name}: expected hf:ORG/NAME of the hub, or hf:./FOLDER on this machine"
        )
    if os.path.exists(name):
        raise UsageError(f"hf:{name}: is a folder here as well; write hf:./{name} for the folder")


def load_streams(name: str, options: Options) -> Streams:
    """The splits of a data set as streams: the one place where the hub is asked."""
    if offline() and not Path(name).is_dir():
        raise UsageError(
            f"hf:{name}: is not in the cache and SEBRA_OFFLINE=1 forbids fetching it; "
            "unset SEBRA_OFFLINE or give a local form of DATA"
        )
    try:
        import datasets
    except ImportError:
        raise UsageError(f"hf:{name}: needs the extra `hub`: pip install 'sebra[hub]'") from None
    saved = any((Path(name) / f).is_file() for f in ("state.json", "dataset_dict.json"))
    try:
        if saved:  # by `save_to_disk`
            whole = datasets.load_from_disk(name)
            return whole if isinstance(whole, Mapping) else {"train": whole}
        found: Streams = datasets.load_dataset(
            name, options.config or None, revision=options.revision or None, streaming=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"hf:{name}: cannot be opened ({reason(error)})") from None
    return found


def _fetch(name: str, options: Options, entry: Path) -> None:
    streams = load_streams(name, options)
    splits = _splits(streams, name, options)
    building = entry.with_name(f".{entry.name}-{uuid.uuid4().hex[:8]}")
    building.mkdir(parents=True)
    try:
        writer = _Writer(building)
        for split, own in splits.items():
            stream = streams[own]
            columns = choose_columns(stream.features, asdict(options), f"hf:{name}")
            writer.write_split(split, columns.undecoded(stream), columns, options.limit)
        if writer.rows == 0:
            raise UsageError(f"hf:{name}: holds no labelled rows")
        facts = {"name": name, "options": asdict(options), "rows": writer.rows}
        facts["checksum"] = of_parts([of_json(facts), _checksum(building)])
        (building / "done.json").write_text(json.dumps(facts), encoding="utf-8")
        _publish(building, entry)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _is_whole(entry: Path) -> bool:
    """Whether an entry is there as it was written; a damaged one is removed, with a word."""
    if not entry.is_dir():
        return False
    try:
        facts = json.loads((entry / "done.json").read_text(encoding="utf-8"))
        if facts.pop("checksum") == of_parts([of_json(facts), _checksum(entry)]):
            return True
        error: Exception = ValueError("its content is not what was written")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as found:
        error = found
    log.warning("cache entry %s is damaged and is fetched again (%s)", entry, reason(error))
    shutil.rmtree(entry, ignore_errors=True)
    return False


def _checksum(entry: Path) -> str:
    """Of the tables by their content, of images by name, size and time."""
    tables = [of_file(table) for table in sorted(entry.glob("*.parquet"))]
    images = (p for p in sorted(entry.glob("images/*/*")))
    stamps = (f"{p.name} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in images)
    return of_parts([*tables, *stamps])


class _Writer:
    """Rows of a stream into shards; at most one shard's table is in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = self.files = self.shards = 0

    def write_split(
        self, split: str, stream: Iterable[Mapping[str, Any]], columns: Columns, limit: int
    ) -> None:
        rows = itertools.islice(stream, limit) if limit else iter(stream)
        parsed = (found for row in rows if (found := parse_row(row, columns)) is not None)
        for shard in _pieces(self._stored(parsed, split), SHARD_ROWS):
            self._write_shard(shard)

    def _stored(self, rows: Iterator[dict[str, Any]], split: str) -> Iterator[dict[str, Any]]:
        for number, row in enumerate(rows):
            image = row.pop("image", None)
            row |= {"id": f"{split}/{number}", "split": split}
            if image is not None:
                row["path"] = self._store_file(*image)
            yield row

    def _store_file(self, data: bytes, suffix: str) -> str:
        name = f"images/{self.files // FOLDER_FILES:05d}/{self.files:08d}{suffix}"
        if self.files % FOLDER_FILES == 0:
            (self.folder / name).parent.mkdir(parents=True)
        (self.folder / name).write_bytes(data)
        self.files += 1
        return name

    def _write_shard(self, rows: list[dict[str, Any]]) -> None:
        import pandas as pd

        file = self.folder / f"table-{self.shards:05d}.parquet"
        pd.DataFrame(rows).to_parquet(file, index=False)
        self.shards += 1
        self.rows += len(rows)


def _pieces(rows: Iterator[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    while piece := list(itertools.islice(rows, size)):
        yield piece


def _splits(streams: Streams, name: str, options: Options) -> dict[str, str]:
    """Our split names to the data set's own."""
    found: dict[str, str] = {}
    for split in SPLITS:
        wanted = getattr(options, split)
        if wanted and wanted not in streams:
            known = ", ".join(streams)
            raise UsageError(f"hf:{name}: no split {wanted!r} for option {split} (has: {known})")
        if wanted:
            found[split] = wanted
    for own in streams:
        code = SPLIT_NAMES.get(str(own).lower())
        if code is not None and own not in found.values():
            found.setdefault(SPLITS[code], str(own))
    if "train" not in found:
        known = ", ".join(map(str, streams))
        raise UsageError(f"hf:{name}: no train split (has: {known}); name one with ?train=…")
    return {split: found[split] for split in SPLITS if split in found}


def _key(name: str, options: Options) -> str:
    """Names the entry; of a local folder also its files, so that a change is noticed."""
    parts: list[Any] = [FORMAT_VERSION, name, sorted(asdict(options).items())]
    local = Path(name)
    if local.is_dir():
        files = sorted(p for p in local.rglob("*") if p.is_file())
        parts += [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in files]
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _publish(building: Path, entry: Path) -> None:
    try:
        os.rename(building, entry)
    except OSError:
        if not (entry / "done.json").is_file():
            raise
        # Another process was first; its entry has the same content.


def _read_shards(folder: Path, where: str) -> Samples:
    """The samples of a folder's parquet files, which belong together; `where` names them."""
    import pandas as pd

    # By pyarrow's dataset reader shards whose columns differ in type would be refused.
    tables = [read_parquet(file) for file in sorted(folder.glob("*.parquet"))]
    name = where.rpartition("/")[2]
    return samples_of(pd.concat(tables, ignore_index=True), where, folder, name)
