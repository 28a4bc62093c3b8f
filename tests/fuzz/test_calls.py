"""A small, fixed share of the generated calls, and the seeds of those that once failed."""

from __future__ import annotations

import json
import random
import shutil

import pandas as pd
import pytest

import miniatures
from fuzz import oddities

QUICK = ("--device", "cpu", "--set", "epochs=2", "--backbone", "random")


@pytest.fixture(scope="module")
def ranked(tmp_path_factory):
    """A run over pictures."""
    from sebra.cli.main import run

    root = tmp_path_factory.mktemp("calls")
    data = miniatures.folder(root / "pets", n=8)
    asked = ("rank", data, *QUICK, "--out", root / "run")
    assert run([str(a) for a in asked]) == 0
    return root / "run"


@pytest.fixture
def stranger(ranked, tmp_path):
    """A copy without checksums, as anybody could hand it over."""
    shutil.copytree(ranked, tmp_path / "run")
    (tmp_path / "run" / "checksums.json").unlink()
    return tmp_path / "run"


def refused(call_cli, words, *arguments):
    done = call_cli(*arguments)
    assert done.status == 2, done
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


COLUMNS = {
    "id": [["a"]],
    "label": [3],
    "rank": [-1, 0.5, None],
    "bucket": ["x"],
    "spuriosity": [2.0, None],
    "stage_1": ["x", 7.0],
    "noise": [float("inf")],
}


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, vs in COLUMNS.items() for v in vs])
def test_a_ranking_of_a_stranger_is_refused_by_its_columns(stranger, call_cli, name, value):
    file = stranger / "ranking.parquet"
    table = pd.read_parquet(file)
    table[name] = [value] * len(table)
    table.to_parquet(file)
    refused(call_cli, f"not a ranking, column {name}", "report", stranger)


@pytest.mark.parametrize("name", ["epoch", "learned", "loss", "label"])
def test_a_history_of_a_stranger_is_refused(stranger, call_cli, name):
    file = stranger / "history.parquet"
    table = pd.read_parquet(file)
    table[name] = [["x"]] * len(table) if name == "label" else "x"
    table.to_parquet(file)
    refused(call_cli, f"not the history of a run (column {name})", "report", stranger)


@pytest.mark.parametrize("command", [("report",), ("check",)])
def test_figures_of_a_stranger_are_refused_by_every_command(stranger, call_cli, command):
    file = stranger / "metrics.json"
    found = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**found, "model": {"patterns": 3}}), encoding="utf-8")
    words = "not the metrics of a run (model"
    refused(call_cli, words, command[0], stranger, *command[1:])


@pytest.mark.parametrize("text", ["check = 1.5", 'check = "x"', "check = [1]", "check = [[[[1]]]]"])
def test_conditions_that_are_no_table_are_refused(stranger, call_cli, tmp_path, text):
    (tmp_path / "c.toml").write_text(text, encoding="utf-8")
    words = "is not a table of conditions"
    refused(call_cli, words, "check", stranger, "--config", tmp_path / "c.toml")


def test_drops_that_are_no_numbers_are_refused(stranger, call_cli):
    sides = {"with_it": {"accuracy": "x"}, "against_it": {"accuracy": []}}
    text = json.dumps({"patterns": [sides]})
    (stranger / "patterns.json").write_text(text, encoding="utf-8")
    refused(call_cli, "patterns.json: unreadable", "check", stranger)


@pytest.mark.parametrize("seed", range(12))
def test_figures_changed_at_random_are_read_or_refused(stranger, call_cli, seed):
    rng = random.Random(seed)
    file = stranger / "metrics.json"
    changed = oddities.changed_json(json.loads(file.read_text(encoding="utf-8")), rng)
    file.write_text(json.dumps(changed), encoding="utf-8", errors="surrogatepass")
    done = call_cli("report", stranger)
    assert done.status in (0, 2), done


ENTRIES = {
    "images": [{}, {"faults": None}, {"faults": [3]}, {"faults": [[99, "x"]] * 20}],
    "features": [{}, {"width": "x"}, {"width": 7}, {"width": 10**9}, {"width": None}],
}


@pytest.mark.parametrize(("kind", "meta"), [(k, m) for k, ms in ENTRIES.items() for m in ms])
def test_a_cache_entry_of_a_stranger_is_made_again(ranked, call_cli, tmp_path, caplog, kind, meta):
    """Its checksum fits, what it says does not."""
    from sebra.loading.cache import _checksum
    from sebra.places import cache_root

    asked = ("rank", ranked.parent / "pets", *QUICK, "--out")
    assert call_cli(*asked, tmp_path / "first").status == 0
    file = max(cache_root().glob(f"{kind}/*/meta.json"), key=lambda p: p.stat().st_mtime)
    kept = {**meta, "checksum": _checksum(file.with_name("array.npy"), meta)}
    file.write_text(json.dumps(kept), encoding="utf-8")
    done = call_cli(*asked, tmp_path / "again")
    assert done.status == 0, done
    assert "is damaged and is made again" in caplog.text
    tables = [tmp_path / name / "ranking.parquet" for name in ("first", "again")]
    assert tables[0].read_bytes() == tables[1].read_bytes()


LARGE = "9" * 400  # more than a float can hold


@pytest.mark.parametrize(
    "option",
    [("--seed", LARGE), ("--image-size", LARGE)]
    + [
        ("--set", f"{name}={sign}{LARGE}")
        for name in ("epochs", "batch", "lr")
        for sign in ("", "-")
    ],
)
def test_a_number_that_no_machine_holds_is_refused(ranked, call_cli, option):
    refused(call_cli, "is not" if option[0] != "--set" else "must be", *asked_with(ranked, option))


def asked_with(ranked, option):
    return ("rank", ranked.parent / "pets", "--device", "cpu", "--method", "sebra", *option)


@pytest.mark.parametrize("text", [LARGE, "[" * 100_000], ids=["large", "deep"])
@pytest.mark.parametrize("file", ["metrics.json", "checksums.json"])
def test_json_beyond_all_measure_is_refused(ranked, call_cli, tmp_path, file, text):
    shutil.copytree(ranked, tmp_path / "run")
    (tmp_path / "run" / file).write_text(f'{{"version": "1", "seconds": {text}', encoding="utf-8")
    refused(call_cli, file, "report", tmp_path / "run")


@pytest.mark.parametrize("text", [f'{{"cat": [{LARGE}]}}', "[" * 100_000], ids=["large", "deep"])
def test_neurons_beyond_all_measure_are_refused(ranked, call_cli, tmp_path, text):
    (tmp_path / "n.json").write_text(text, encoding="utf-8")
    option = ("--method", "neurons", "--neurons", tmp_path / "n.json")
    asked = ("rank", ranked.parent / "pets", *QUICK, *option)
    refused(call_cli, "is not JSON", *asked)


TOML = {"a date": "x = 1979-05-27", "a time": "x = 07:32:00", "large": f"x = {LARGE}"}
TOML["deep"] = f"x = {'[' * 3000}{']' * 3000}"


@pytest.mark.parametrize("name", TOML)
def test_toml_that_no_run_writes_is_refused(stranger, ranked, call_cli, tmp_path, name):
    config = stranger / "config.toml"
    config.write_text(TOML[name] + "\n" + config.read_text(encoding="utf-8"), encoding="utf-8")
    refused(call_cli, "config.toml: not TOML", "report", stranger)
    shutil.copy(ranked / "checksums.json", stranger)
    assert call_cli("verify", stranger).status == 1
    (tmp_path / "p.toml").write_text(TOML[name], encoding="utf-8")
    data = ranked.parent / "pets"
    refused(call_cli, "p.toml", "rank", data, *QUICK, "--preset", tmp_path / "p.toml")


@pytest.mark.parametrize("text", ["x = 1", "[rnk]\nlr = 0.1", "[debais.sebra]\ntau = 1"])
def test_a_section_that_no_preset_has_is_refused(ranked, call_cli, tmp_path, text):
    (tmp_path / "p.toml").write_text(text, encoding="utf-8")
    asked = ("rank", ranked.parent / "pets", *QUICK, "--preset", tmp_path / "p.toml")
    refused(call_cli, "is not one of base, mode, rank, debias, network", *asked)


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e999", LARGE])
def test_a_model_of_sizes_that_are_no_numbers_is_refused(ranked, call_cli, tmp_path, number):
    data = ranked.parent / "pets"
    asked = ("debias", data, *QUICK, "--method", "erm", "--out", tmp_path / "run")
    assert call_cli(*asked).status == 0
    file = tmp_path / "run" / "model.json"
    found = json.loads(file.read_text(encoding="utf-8"))
    found["networks"][0]["inputs"][1] = "HERE"
    found.pop("checksum")
    file.write_text(json.dumps(found).replace('"HERE"', number), encoding="utf-8")
    refused(call_cli, "not a model of Sebra", "predict", tmp_path / "run", data)
    done = call_cli("verify", tmp_path / "run")
    assert done.status == 1, done
    assert "model.json" in done.stdout


@pytest.mark.parametrize("name", ["\ud800\udfff", "a\0b"])
def test_a_folder_that_nothing_can_be_named_is_refused(ranked, call_cli, name):
    refused(call_cli, "sebra:", *asked_with(ranked, ("--out", name)))
    refused(call_cli, "sebra:", "rank", ranked.parent / "none", *QUICK, "--out", f"{name}/x")
    refused(call_cli, "--out: cannot write", "report", ranked, "--out", f"{name}.html")
