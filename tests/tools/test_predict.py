"""Predictions for every form of DATA, readable or not."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
import torch

import miniatures
from sebra.debiasing.model import Model
from sebra.engine.networks import LINEAR, SMALL, NetworkSpec, build
from sebra.errors import UsageError
from sebra_tools.predict import predict


@pytest.fixture
def model():
    """Says `green` where green outshines red: the tint of the miniatures' pictures."""
    spec = NetworkSpec(SMALL, (3, 16, 16), 2)
    network = build(spec, 0)

    class ByColour(torch.nn.Module):
        def forward(self, x):
            red, green, _ = x.float().mean((2, 3)).unbind(1)
            return torch.stack([red, green], 1) / 20

    network.forward = ByColour().forward
    return Model(network, ("red", "green"), (spec,))


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_flat_folder_without_classes(model, tmp_path):
    for i in range(4):
        miniatures.save(tmp_path / f"{i}.png", seed=i, tint=i % 2)
    rows = table(predict(model, str(tmp_path)).csv())
    assert [r["id"] for r in rows] == ["0.png", "1.png", "2.png", "3.png"]
    assert [r["predicted"] for r in rows] == ["red", "green", "red", "green"]
    for row in rows:
        both = float(row["p_red"]), float(row["p_green"])
        assert sum(both) == pytest.approx(1, abs=1e-5)
        assert float(row["probability"]) == max(both)


def test_one_image_and_class_folders_and_layouts(model, tmp_path):
    miniatures.folder(tmp_path / "photos", n=2)
    single = predict(model, str(tmp_path / "photos" / "dog" / "000.png"))
    assert single.rows()[0]["predicted"] == "green"
    found = predict(model, str(tmp_path / "photos"))
    assert found.ids.tolist() == ["cat/000.png", "cat/001.png", "dog/000.png", "dog/001.png"]
    assert found.counts() == {"red": 2, "green": 2}
    miniatures.bar(tmp_path / "bar", n=2)
    layout = predict(model, f"bar:{tmp_path / 'bar'}")
    assert len(layout.ids) == 12
    manifest = predict(model, str(miniatures.manifest(tmp_path / "table")))
    assert manifest.rows()[1]["predicted"] == "green"


def test_unreadable_images_keep_their_place_with_an_empty_prediction(model, tmp_path):
    for i in range(3):
        miniatures.save(tmp_path / f"{i}.png", seed=i, tint=1)
    (tmp_path / "1.png").write_bytes(b"not a picture")
    found = predict(model, str(tmp_path))
    rows = table(found.csv())
    assert [r["predicted"] for r in rows] == ["green", "", "green"]
    assert rows[1] == {
        "id": "1.png",
        "predicted": "",
        "probability": "",
        "p_red": "",
        "p_green": "",
    }
    assert [(f.id, f.reason) for f in found.faults] == [("1.png", "not a readable image")]
    assert found.counts() == {"red": 0, "green": 2}


def test_names_that_a_spreadsheet_would_run_are_quoted(model, tmp_path):
    miniatures.save(tmp_path / "=1+1.png", seed=0)
    assert "\n'=1+1.png," in predict(model, str(tmp_path)).csv()


def test_more_images_than_one_piece_stay_in_order(model, tmp_path, monkeypatch):
    from sebra_tools import predict as module

    for i in range(7):
        miniatures.save(tmp_path / f"{i}.png", seed=i, tint=i % 2)
    (tmp_path / "4.png").write_bytes(b"")
    whole = predict(model, str(tmp_path)).rows()
    monkeypatch.setattr(module, "_CHUNK", 2)
    assert predict(model, str(tmp_path)).rows() == whole


def test_contents_of_another_kind_are_refused(model, tmp_path):
    features = miniatures.npz(tmp_path / "x.npz")
    with pytest.raises(UsageError, match="holds features, the model takes images"):
        predict(model, str(features))
    spec = NetworkSpec(LINEAR, (9,), 2)
    other = Model(build(spec, 0), ("a", "b"), (spec,))
    with pytest.raises(UsageError, match="has 5 features, the model takes 9"):
        predict(other, str(features))
    miniatures.folder(tmp_path / "photos")
    with pytest.raises(UsageError, match="holds images, the model takes 9 features"):
        predict(other, str(tmp_path / "photos"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no images found"):
        predict(model, str(tmp_path / "empty"))


def test_features_agree_with_the_model_itself(call_cli, tmp_path):
    spec = NetworkSpec(LINEAR, (5,), 2, hidden=3)
    network = build(spec, 0)
    torch.nn.init.normal_(network.head.weight)
    model = Model(network, ("a", "b"), (spec,))
    model.save(tmp_path / "run")
    data = miniatures.npz(tmp_path / "x.npz")
    done = call_cli("predict", tmp_path / "run", data, "--device", "cpu")
    assert done.status == 0, done.stderr
    rows = table(done.stdout)
    expected = model.probabilities(np.load(data)["X"])
    shown = np.array([[float(r["p_a"]), float(r["p_b"])] for r in rows])
    np.testing.assert_allclose(shown, expected, atol=1e-5)
    assert [r["id"] for r in rows] == [str(i) for i in range(60)]


def test_the_command_reports_on_stderr_and_prints_one_object(call_cli, tmp_path):
    spec = NetworkSpec(SMALL, (3, 16, 16), 2)
    Model(build(spec, 0), ("a", "b"), (spec,)).save(tmp_path / "run")
    miniatures.save(tmp_path / "new" / "0.png", seed=0)
    (tmp_path / "new" / "1.png").write_bytes(b"broken")
    done = call_cli("predict", tmp_path / "run", "new", "--json", "--out", "deep/answers.csv")
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["unreadable"] == [{"id": "1.png", "reason": "not a readable image"}]
    assert found["samples"] == 2
    assert "unreadable: 1.png (not a readable image)" in done.stderr
    assert len(table((tmp_path / "deep" / "answers.csv").read_text(encoding="utf-8"))) == 2
    assert call_cli("predict", tmp_path / "run", "nowhere").status == 2
    assert call_cli("predict", tmp_path / "new", "new").status == 2


class Test_data_without_labels:
    @pytest.fixture
    def linear(self):
        spec = NetworkSpec(LINEAR, (5,), 2)
        return Model(build(spec, 0), ("a", "b"), (spec,))

    @pytest.mark.parametrize("labels", [None, [0, 1, 1], [1, 1, 1], ["new", "", "x"]])
    def test_features_need_none_and_any_do(self, linear, tmp_path, labels):
        x = np.random.default_rng(0).normal(size=(3, 5))
        more = {} if labels is None else {"y": np.array(labels), "split": np.full(3, 2)}
        np.savez(tmp_path / "new.npz", X=x, **more)
        found = predict(linear, str(tmp_path / "new.npz"))
        assert found.ids.tolist() == ["0", "1", "2"]
        np.save(tmp_path / "X.npy", x)
        again = predict(linear, str(tmp_path))
        assert np.array_equal(found.probabilities, again.probabilities)

    def test_a_table_of_paths(self, model, tmp_path):
        for i in range(2):
            miniatures.save(tmp_path / f"{i}.png", seed=i, tint=i % 2)
        (tmp_path / "new.csv").write_text("path,split\n1.png,test\n0.png,nonsense\n", "utf-8")
        found = predict(model, str(tmp_path / "new.csv"))
        assert found.ids.tolist() == ["1.png", "0.png"]
        assert [r["predicted"] for r in found.rows()] == ["green", "red"]

    def test_what_cannot_be_predicted_is_said(self, linear, model, tmp_path):
        np.savez(tmp_path / "no.npz", y=np.zeros(3))
        with pytest.raises(UsageError, match="no array 'X'"):
            predict(linear, str(tmp_path / "no.npz"))
        np.savez(tmp_path / "nan.npz", X=np.full((2, 5), np.nan))
        with pytest.raises(UsageError, match="NaN or infinity"):
            predict(linear, str(tmp_path / "nan.npz"))
        (tmp_path / "no.csv").write_text("label\ncat\n", encoding="utf-8")
        with pytest.raises(UsageError, match="no column 'path' or 'text'"):
            predict(model, str(tmp_path / "no.csv"))
