"""Models that were not trained here: tables of predictions and ONNX files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import miniatures
from sebra.errors import UsageError
from sebra.samples.open import open_samples
from sebra.samples.table import Samples
from sebra_tools.answers import UNKNOWN, answers_of, is_model


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    return open_samples(str(miniatures.npz(tmp_path / "data.npz")))


def written(tmp_path: Path, columns: dict[str, object], name: str = "mine.csv") -> str:
    pd.DataFrame(columns).to_csv(tmp_path / name, index=False)
    return str(tmp_path / name)


def names(samples: Samples) -> np.ndarray:
    return np.asarray(samples.classes, dtype=object)[samples.labels]


def test_predicted_labels_in_any_order(samples: Samples, tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(len(samples))
    file = written(tmp_path, {"id": samples.ids[order], "predicted": names(samples)[order]})
    assert (answers_of(file, samples).predicted == samples.labels).all()


@pytest.mark.parametrize("prefix", ["p_", ""])
def test_probabilities_by_class(samples: Samples, tmp_path: Path, prefix: str) -> None:
    hot = np.eye(len(samples.classes))[samples.labels] * 0.6 + 0.2
    columns = {f"{prefix}{c}": hot[:, k] for k, c in enumerate(samples.classes)}
    file = written(tmp_path, {"id": samples.ids, **columns})
    assert (answers_of(file, samples).predicted == samples.labels).all()


def test_what_is_not_answered_is_not_known(samples: Samples, tmp_path: Path) -> None:
    said = names(samples)
    said[1] = None
    file = written(tmp_path, {"id": samples.ids[:-1], "predicted": said[:-1]})
    found = answers_of(file, samples).predicted
    assert found[1] == found[-1] == UNKNOWN
    assert (np.delete(found, [1, -1]) == np.delete(samples.labels, [1, -1])).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.rename(columns={"id": "name"}), "has no column id"),
        (lambda t: t.drop(columns="predicted"), "needs a column predicted"),
        (lambda t: t.iloc[:0], "has no rows"),
        (lambda t: t.assign(predicted="zebra"), "'zebra' is no class"),
        (lambda t: t.assign(id=[f"other{i}" for i in range(len(t))]), "none of its ids"),
        (lambda t: pd.concat([t, t]), "occurs twice"),
    ],
)
def test_a_wrong_table_is_refused_in_one_line(
    samples: Samples, tmp_path: Path, change: object, said: str
) -> None:
    table = change(pd.DataFrame({"id": samples.ids, "predicted": names(samples)}))  # type: ignore[operator]
    table.to_csv(tmp_path / "mine.csv", index=False)
    with pytest.raises(UsageError, match=said):
        answers_of(str(tmp_path / "mine.csv"), samples)


def test_files_that_are_none(samples: Samples, tmp_path: Path) -> None:
    for name in ("mine.csv", "mine.parquet", "mine.onnx"):
        (tmp_path / name).write_bytes(b"\xff\x00 nonsense")
        with pytest.raises(UsageError, match=name):
            answers_of(str(tmp_path / name), samples)
    assert not is_model(str(tmp_path / "absent"))
    with pytest.raises(UsageError, match="neither a model run"):
        answers_of(str(tmp_path), samples)


def linear_onnx(path: Path, weight: np.ndarray, shape: list[object]) -> Path:
    """A network of one matrix, as any tool may write it: floats in, scores out, no class names."""
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    nodes = [h.make_node("MatMul", ["x", "w"], ["y"])]
    kind = onnx.TensorProto.FLOAT
    if len(shape) == 4:
        nodes = [h.make_node("ReduceMean", ["x"], ["m"], axes=[2, 3], keepdims=0)]
        nodes.append(h.make_node("MatMul", ["m", "w"], ["y"]))
    graph = h.make_graph(
        nodes,
        "linear",
        [h.make_tensor_value_info("x", kind, shape)],
        [h.make_tensor_value_info("y", kind, [None, weight.shape[1]])],
        [onnx.numpy_helper.from_array(weight.astype(np.float32), "w")],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


def test_an_onnx_file_of_another_tool_over_features(samples: Samples, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    x = samples.content.values[samples.content.rows]  # type: ignore[union-attr]
    weight = np.random.default_rng(0).normal(size=(x.shape[1], len(samples.classes)))
    file = linear_onnx(tmp_path / "m.onnx", weight, [None, x.shape[1]])
    found = answers_of(str(file), samples).predicted
    rows = np.flatnonzero(found != UNKNOWN)
    assert len(rows)
    assert (found[rows] == (x[rows].astype(np.float32) @ weight).argmax(1)).all()
    wrong = linear_onnx(tmp_path / "w.onnx", weight[:, :1], [None, x.shape[1]])
    with pytest.raises(UsageError, match="not one of"):
        answers_of(str(wrong), samples)


def test_an_onnx_file_over_pictures_sees_them_as_usual(tmp_path: Path) -> None:
    """Red pictures are of the first class: channels first, standardised."""
    pytest.importorskip("onnxruntime")
    from PIL import Image

    for name, colour in (("blue", (0, 0, 255)), ("red", (255, 0, 0))):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(3):
            Image.new("RGB", (32, 32), colour).save(tmp_path / "data" / name / f"{i}.png")
    samples = open_samples(str(tmp_path / "data"))
    weight = np.array([[-1.0, 1.0], [0.0, 0.0], [1.0, -1.0]])
    file = linear_onnx(tmp_path / "m.onnx", weight, [None, 3, 32, 32])
    assert (answers_of(str(file), samples).predicted == samples.labels).all()
