"""Every reader of files that others may have written, with a good file to start from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import miniatures
from sebra.errors import UsageError

Write = Callable[[Path], Path]  # makes a good file (or more) in a folder; the file to damage
Read = Callable[[Path], object]


@dataclass(frozen=True)
class Reader:
    """`read` must end well or in a `UsageError`, whatever is in the file that `write` made."""

    write: Write
    read: Read


def outcome(reader: Reader, file: Path, data: bytes) -> str:
    """`read` or `refused`; any other exception is a failure and passes through."""
    file.write_bytes(data)
    try:
        reader.read(file)
    except UsageError:
        return "refused"
    return "read"


def _open(file: Path) -> object:
    from sebra.samples.open import open_samples

    return open_samples(str(file))


def _open_folder(file: Path) -> object:
    return _open(file.parent)


def _checkpoint(folder: Path) -> Path:
    from sebra.engine.session import Session

    network, total = torch.nn.Linear(3, 2), torch.zeros(4)
    run = Session(folder, {"seed": 0}, every_seconds=0)
    run.once("ranking", lambda: {"rank": torch.arange(5)})
    for _ in run.phase("train", 2, {"network": network, "total": total}):
        total += 1
    return folder / "state.safetensors"


def _resume(file: Path) -> object:
    from sebra.engine.session import Session

    run = Session(file.parent, {"seed": 0}, resume=True)
    state = {"network": torch.nn.Linear(3, 2), "total": torch.zeros(4)}
    return list(run.phase("train", 2, state))


def _weights(folder: Path) -> Path:
    save_file({"a": torch.zeros(3, 2), "b": torch.ones(4)}, str(folder / "w.safetensors"))
    return folder / "w.safetensors"


def _read_weights(file: Path) -> object:
    from sebra.engine.weights import read_weights

    return read_weights(str(file))


def _model(folder: Path) -> Path:
    from sebra.debiasing.model import Model
    from sebra.engine.networks import NetworkSpec, build

    spec = NetworkSpec("linear", (3,), 2)
    Model(build(spec, 0), ("a", "b"), (spec,)).save(folder)
    return folder / "model.json"


def _model_weights(folder: Path) -> Path:
    return _model(folder).with_name("model.safetensors")


def _load_model(file: Path) -> object:
    from sebra.debiasing.model import Model

    return Model.load(file.parent, "cpu")


def _preset(folder: Path) -> Path:
    text = '[rank]\nepochs = 3\nlr = 0.1\n[rank.sebra]\nbeta = 1.5\ndraws = "full"\n'
    (folder / "p.toml").write_text(text, encoding="utf-8")
    return folder / "p.toml"


def _build_config(file: Path) -> object:
    from sebra.ranking.sebra import SebraConfig
    from sebra.runs.config import settle

    return settle(SebraConfig, "rank", "sebra", "finetune", str(file)).config


def _run_file(name: str) -> Write:
    def write(folder: Path) -> Path:
        from sebra.runs.folder import RunFolder

        run = RunFolder(folder)
        run.write_config({"seed": 0, "settings": {"lr": 0.1, "names": ["a", "b"]}})
        run.write_metrics({"version": "1", "seconds": {"total": 1.5}, "notes": ["x"]})
        return folder / name

    return write


def _read_run(file: Path) -> object:
    from sebra.runs.folder import RunFolder

    run = RunFolder(file.parent)
    return run.read_config(), run.read_metrics()


def _ranking(folder: Path) -> Path:
    import pandas as pd

    columns = {"id": ["a", "b"], "label": ["x", "y"], "rank": [0, 0], "bucket": [0, 1]}
    table = pd.DataFrame({**columns, "spuriosity": [1.0, 1.0]})
    table.to_parquet(folder / "ranking.parquet")
    return folder / "ranking.parquet"


def _load_ranking(file: Path) -> object:
    from sebra.ranking.ranking import Ranking

    return Ranking.load(file).aligned_to(np.array(["a", "b"], dtype=object))


def _marks(folder: Path) -> Path:
    (folder / "m.csv").write_text("id,mark,label\na,drop,\nb,relabel,x\n", encoding="utf-8")
    return folder / "m.csv"


def _read_marks(file: Path) -> object:
    from sebra.samples.marks import read_marks

    return read_marks(str(file))


def _verdicts(folder: Path) -> Path:
    from sebra.samples.verdicts import Verdicts

    said = Verdicts({"run": "r", "data": "d", "ranking": "abc"})
    entry = {"verdict": "shortcut", "note": "the sea"}
    said.say({"kind": "patterns", "key": "stage_1", "entry": entry})
    said.say({"kind": "marks", "key": "a", "entry": {"verdict": "relabel", "label": "x"}})
    said.save(folder / "verdicts.json")
    return folder / "verdicts.json"


def _predictions(folder: Path) -> Path:
    miniatures.npz(folder / "x.npz")
    (folder / "mine.csv").write_text("id,predicted\n0,0\n1,1\n2,\n", encoding="utf-8")
    return folder / "mine.csv"


def _read_predictions(file: Path) -> object:
    from sebra.samples.open import open_samples
    from sebra_tools.answers import answers_of

    return answers_of(str(file), open_samples(str(file.with_name("x.npz"))))


def _conditions(folder: Path) -> Path:
    (folder / "sebra.toml").write_text("[check]\nlargest_drop = 20\nsuspects = 0.1\n")
    return folder / "sebra.toml"


def _read_conditions(file: Path) -> object:
    from sebra_tools.check import conditions_of

    return conditions_of(str(file), {})


def _compressed(folder: Path) -> Path:
    np.savez_compressed(folder / "x.npz", **miniatures.features(30))
    return folder / "x.npz"


READERS: dict[str, Reader] = {
    "manifest csv": Reader(miniatures.manifest, _open),
    "manifest parquet": Reader(lambda p: miniatures.manifest(p, kind="parquet"), _open),
    "texts csv": Reader(miniatures.text_manifest, _open),
    "npz": Reader(lambda p: miniatures.npz(p / "x.npz"), _open),
    "npz compressed": Reader(_compressed, _open),
    "npy": Reader(lambda p: miniatures.array_folder(p) / "y.npy", _open_folder),
    "checkpoint": Reader(_checkpoint, _resume),
    "weights": Reader(_weights, _read_weights),
    "model.json": Reader(_model, _load_model),
    "model.safetensors": Reader(_model_weights, _load_model),
    "preset": Reader(_preset, _build_config),
    "config.toml": Reader(_run_file("config.toml"), _read_run),
    "metrics.json": Reader(_run_file("metrics.json"), _read_run),
    "ranking.parquet": Reader(_ranking, _load_ranking),
    "marks": Reader(_marks, _read_marks),
    "verdicts": Reader(_verdicts, _read_marks),
    "predictions": Reader(_predictions, _read_predictions),
    "conditions": Reader(_conditions, _read_conditions),
}
