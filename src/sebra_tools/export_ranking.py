"""`sebra export` of a ranking run: tables and folders that other tools read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sebra.errors import UsageError
from sebra.ranking.noise import SUSPECT
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import CONFIG, RunFolder
from sebra.whole import write_text, written
from sebra_tools.tables import csv_text

if TYPE_CHECKING:
    import pandas as pd

    from sebra.samples.table import Samples

SUFFIX = {"csv": ".csv", "cleanlab": ".csv", "npz": ".npz", "labelstudio": "", "fiftyone": ""}
FOLDERS = ("labelstudio", "fiftyone")
FORMATS = tuple(SUFFIX)


def default_file(folder: Path, format_: str) -> Path:
    """Where an export goes when no place is named."""
    names = {"csv": "ranking", "cleanlab": "label_issues", "npz": "ranking"}
    return folder / f"{names.get(format_, format_)}{SUFFIX[format_]}"


def export_ranking(run: str, format_: str, out: Path, data: str | None = None) -> dict[str, Any]:
    """Writes the ranking of a run in a format of `FORMATS` and says what was written.

    csv: every column. cleanlab: `is_label_issue`, `label_score`, `given_label` and
    `predicted_label` per sample, as cleanlab's Datalab names them. npz: `X` (samples x figures,
    named by `columns`), `y`, `classes` and `ids`, ready for scikit-learn. fiftyone: a folder that
    FiftyOne loads as `FiftyOneImageClassificationDataset`. labelstudio: a folder with the labelling
    interface (`config.xml`) and `tasks.json`, likely wrong labels first, with the likelier one.
    """
    table = Ranking.load(run).table
    writers: dict[str, Callable[[], object]] = {
        "csv": lambda: write_text(out, csv_text(_rows(table))),
        "cleanlab": lambda: write_text(out, csv_text(_label_issues(table))),
        "npz": lambda: _write_npz(out, table),
        "fiftyone": lambda: _write_fiftyone(out, table, _samples(run, data, format_)),
        "labelstudio": lambda: _write_label_studio(out, table, _samples(run, data, format_)),
    }
    writers[format_]()
    return {"format": format_, "file": str(out), "samples": len(table)}


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in table.to_dict(orient="records")]


def _label_issues(table: pd.DataFrame) -> list[dict[str, Any]]:
    _need_noise(table, "cleanlab")
    return [
        {
            "id": row["id"],
            "is_label_issue": str(bool(row["noise"] >= SUSPECT)),  # as pandas writes and reads it
            "label_score": float(1 - row["noise"]),
            "given_label": row["label"],
            "predicted_label": row.get("suggested", row["label"]),
        }
        for row in _rows(table)
    ]


def _need_noise(table: pd.DataFrame, format_: str) -> None:
    if "noise" not in table:
        raise UsageError(
            f"--format {format_}: this ranking has no noise column; rank the data again"
        )


def _write_npz(out: Path, table: pd.DataFrame) -> None:
    figures = [c for c in table.columns if table[c].dtype.kind in "fiu"]
    classes, y = np.unique(table["label"].astype(str).to_numpy(dtype=np.str_), return_inverse=True)
    arrays: dict[str, Any] = {
        "X": table[figures].to_numpy(dtype=np.float64),
        "y": y.reshape(-1).astype(np.int64),
        "columns": np.array([str(c) for c in figures]),
        "classes": classes,
        "ids": table["id"].astype(str).to_numpy(dtype=np.str_),
    }
    with written(out) as (temporary,), temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _samples(run: str, data: str | None, format_: str) -> Samples:
    from sebra.samples.open import open_samples

    folder = RunFolder(Path(run))
    source = data or (str(folder.read_config().get("data", "")) if folder.has(CONFIG) else "")
    if not source:
        raise UsageError(f"--format {format_}: the run does not name its data; give --data DATA")
    samples = open_samples(source)
    if samples.kind != "image" and (format_ == "fiftyone" or samples.kind != "text"):
        raise UsageError(f"--format {format_}: {source} holds no images")
    return samples


def _write_fiftyone(out: Path, table: pd.DataFrame, samples: Samples) -> None:
    """`labels.json` by the paths of images; those that are no files are written to `data/`."""
    (out / "data").mkdir(parents=True, exist_ok=True)
    labels: dict[str, Any] = {}
    for number, (row, at) in enumerate(_placed(table, samples)):
        path = _image_file(out, samples, at, f"{number:07d}")
        if path in labels:  # FiftyOne knows a sample by its file
            copy = out / "data" / f"{number:07d}{Path(path).suffix}"
            path = str(shutil.copy(path, copy.resolve()))
        # FiftyOne's labels have an `id` of their own.
        facts = {"sample_id" if k == "id" else k: _plain(v) for k, v in row.items()}
        facts.pop("label")
        labels[path] = {"label": str(row["label"]), "attributes": facts}
    text = json.dumps({"labels": labels}, ensure_ascii=False, allow_nan=False)
    write_text(out / "labels.json", text)


def _placed(table: pd.DataFrame, samples: Samples) -> Iterator[tuple[dict[str, Any], int]]:
    """Every row of the ranking with its row in the data set."""
    place = {str(name): row for row, name in enumerate(samples.ids.tolist())}
    for row in _rows(table):
        if str(row["id"]) not in place:
            raise UsageError(f"--data: {samples.source} has no sample {row['id']}")
        yield row, place[str(row["id"])]


def _write_label_studio(out: Path, table: pd.DataFrame, samples: Samples) -> None:
    """Pictures are named as Label Studio's local files: `/data/local-files/?d=PATH`."""
    from urllib.parse import quote
    from xml.sax.saxutils import quoteattr

    from sebra.samples.table import Texts

    _need_noise(table, "labelstudio")
    out.mkdir(parents=True, exist_ok=True)
    content = samples.content
    kind = "text" if isinstance(content, Texts) else "image"
    tasks: list[dict[str, Any]] = []
    likeliest = table.sort_values("noise", ascending=False, kind="stable")
    for number, (row, at) in enumerate(_placed(likeliest, samples)):
        if isinstance(content, Texts):
            shown = " — ".join(t[at] for t in (content.first, content.second) if t)
        else:
            file = _image_file(out, samples, at, f"{number:07d}")
            shown = f"/data/local-files/?d={quote(str(Path(file).resolve()).lstrip('/'))}"
        value = {"choices": [str(row.get("suggested", row["label"]))]}
        result = {"from_name": "label", "to_name": kind, "type": "choices", "value": value}
        said = {"model_version": "sebra", "score": float(row["noise"]), "result": [result]}
        facts: dict[str, Any] = {k: _plain(v) for k, v in row.items()}
        tasks.append({"data": {kind: shown, **facts}, "predictions": [said]})
    choices = "".join(f"<Choice value={quoteattr(c)}/>" for c in samples.classes)
    tag = kind.capitalize()
    config = (
        f'<View><{tag} name="{kind}" value="${kind}"/><Header value="$why"/>'
        f'<Choices name="label" toName="{kind}" choice="single">{choices}</Choices></View>\n'
    )
    write_text(out / "config.xml", config)
    text = json.dumps(tasks, ensure_ascii=False, allow_nan=False, indent=1)
    write_text(out / "tasks.json", text)


def _image_file(out: Path, samples: Samples, at: int, key: str) -> str:
    from sebra.samples.table import ImageArray, ImageFiles

    content = samples.content
    if isinstance(content, ImageFiles):
        return str(content.paths[at].resolve())
    from PIL import Image

    assert isinstance(content, ImageArray)
    path = out / "data" / f"{key}.png"
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(content.pixels[content.rows[at]]).save(path)
    return str(path.resolve())


def _plain(value: Any) -> Any:
    """A value as JSON holds it; None for a number that is none."""
    if isinstance(value, (np.integer, int)):
        return int(value)
    if isinstance(value, (np.floating, float)):
        return float(value) if np.isfinite(value) else None
    return str(value)
