"""`sebra bench` as a command: what it prints, and that being killed costs one run at most."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import miniatures
from sebra_bench.rows import read_rows


@pytest.fixture
def data(tmp_path):
    return miniatures.npz(tmp_path / "two.npz")


def arguments(data, *more):
    quick = ("--set", "epochs=2", "--set", "rank.epochs=2", "--min-group", 1, "--device", "cpu")
    return "bench", data, *quick, *more


# With two jobs, which share the file; rows of one that was cut off are in test_bench.py.
def test_killed_at_any_moment_it_goes_on_and_repeats_nothing(call_cli, data, tmp_path, repo_root):
    run = tmp_path / "run"
    asked = arguments(data, "--methods", "erm,lff,sebra", "--seeds", 3, "--jobs", 2, "--out", run)
    environment = {**os.environ, "PYTHONPATH": str(repo_root / "src")}
    process = subprocess.Popen(
        [sys.executable, "-m", "sebra", *map(str, asked)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (run / "rows.jsonl").is_file():
        assert process.poll() is None, "ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = _children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for child in children:  # they end with the one that asked, and write nothing after it
        while _is_running(child):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finished = read_rows(run / "rows.jsonl")  # whole, whatever the moment
    assert len(finished) < 12

    done = call_cli(*asked, "--json")
    assert done.status == 0, done.stderr
    after = read_rows(run / "rows.jsonl")
    assert after[: len(finished)] == finished
    assert len(after) == 12  # nine models, three rankings
    methods = json.loads(done.stdout)["datasets"][0]["methods"]
    assert {name: m["seeds"] for name, m in methods.items()} == {
        name: [0, 1, 2] for name in ("erm", "lff", "sebra")
    }


def _children(pid):
    import psutil

    return psutil.Process(pid).children(recursive=True)


def _is_running(process):
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_rows_kept_without_the_rest_of_their_run_can_be_gone_on_with(call_cli, data, tmp_path):
    asked = arguments(data, "--methods", "erm", "--seeds", 1)
    assert call_cli(*asked, "--out", "run").status == 0
    kept = tmp_path / "kept"
    kept.mkdir()
    row = (tmp_path / "run" / "rows.jsonl").read_bytes()
    (kept / "rows.jsonl").write_bytes(row)
    (kept / "table.md").write_text("old", encoding="utf-8")
    (kept / "notes.txt").write_text("a person's", encoding="utf-8")
    done = call_cli(*asked, "--out", "kept", "--json")
    assert done.status == 0, done.stderr
    assert (kept / "rows.jsonl").read_bytes() == row
    assert (kept / "notes.txt").read_text(encoding="utf-8") == "a person's"
    assert "two.npz" in (kept / "table.md").read_text(encoding="utf-8")
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "notes.txt").write_text("a person's", encoding="utf-8")
    refused = call_cli(*asked, "--out", "strange")
    assert refused.status == 2
    assert "holds other files" in refused.stderr


def test_results_are_written_as_one_page(call_cli, data, tmp_path):
    assert call_cli(*arguments(data, "--methods", "erm", "--seeds", 2, "--out", "run")).status == 0
    done = call_cli("bench", "results", "run", "--page", "page.md", "--all", "--json")
    assert done.status == 0, done.stderr
    assert json.loads(done.stdout) == {"rows": 2, "page": "page.md"}
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "`sebra bench results run --page page.md --all`" in page
    assert "| erm | no | 2 |" in page
    assert call_cli("bench", "results", "nowhere").status == 2


def test_json_is_one_object_and_the_same_as_metrics_json(call_cli, data, tmp_path):
    done = call_cli(*arguments(data, "--methods", "erm", "--seeds", 1, "--json", "--out", "run"))
    assert done.status == 0, done.stderr
    printed = json.loads(done.stdout)
    written = json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert printed["run"] == "run"
    assert printed == written


def test_options_may_come_before_data_and_the_tables_are_printed(call_cli, data):
    command, name, *rest = arguments(data, "--methods", "erm,sebra", "--seeds", 2)
    done = call_cli(command, *rest, "--out", "run", name)
    assert done.status == 0, done.stderr
    assert "sebra − erm" in done.stdout
    assert "worst group" in done.stdout
    assert "Somers' D" in done.stdout


def test_rankers_asked_for_are_crossed_with_the_methods_that_need_one(call_cli, data, tmp_path):
    asked = arguments(data, "--methods", "erm,sebra", "--rank-methods", "sebra,random")
    done = call_cli(*asked, "--seeds", 1, "--out", "run", "--json")
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)["datasets"][0]
    assert list(found["methods"]) == ["erm", "sebra", "sebra on random"]
    assert list(found["rankings"]) == ["sebra", "random"]
    rows = read_rows(tmp_path / "run" / "rows.jsonl")
    models = [(r["method"], r.get("ranker")) for r in rows if r["kind"] == "model"]
    assert models == [("erm", None), ("sebra", "sebra"), ("sebra", "random")]


def test_the_word_study_runs_a_study(call_cli, data, tmp_path):
    asked = ("--seeds", 1, "--set", "rank.epochs=1", "--out", "run", "--json")
    done = call_cli("bench", "study", "ablation", data, *asked)
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["study"] == "ablation"
    assert set(found["rankings"]) == {
        "sebra",
        "sebra[use_u=false]",
        "erm",
        "erm[by=last]",
        "random",
    }
    assert (tmp_path / "run" / "ablation.png").is_file()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--methods", "magic"], "no debiasing method 'magic'"),
        (["--methods", "erm[lr=fast]"], "'fast' is not a valid lr"),
        (["--methods", "erm", "--set", "tau=1"], "none of erm has such a setting"),
        (["--set", "rank.nothing=1"], "none of sebra has such a setting"),
        (["--rank-methods", "magic"], "no ranker 'magic'"),
        (["--seeds", "0"], "--seeds: 0 is not a number from 1"),
        (["--jobs", "0"], "--jobs: 0 is not a number from 1"),
        (["--preset", "paper/nowhere"], "no preset 'paper/nowhere'"),
    ],
)
def test_wrong_options_cost_one_line_and_status_2(call_cli, data, wrong, words):
    done = call_cli("bench", data, "--out", "run", *wrong)
    assert done.status == 2
    assert words in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_help_shows_an_example_and_names_the_studies(call_cli):
    shown = call_cli("bench", "--help").stdout
    assert shown.startswith("Usage: sebra bench [OPTIONS]")
    assert "Example: sebra bench" in shown
    assert "sebra bench study" in shown
    assert "Example: sebra bench study" in call_cli("bench", "study", "--help").stdout
    assert call_cli("bench").status == 2
    assert call_cli("bench", "study", "nothing", "demo").status == 2
