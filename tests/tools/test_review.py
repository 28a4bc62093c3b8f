"""`sebra review`: who is served, who is refused, and that no verdict is lost."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from finished import ranked_run
from sebra.errors import UsageError
from sebra.runs.folder import RunFolder
from sebra.samples.verdicts import VERDICTS, Verdicts
from sebra_tools.review import LOOPBACK, Review
from sebra_tools.verify import verify

SHORTCUT = {"kind": "patterns", "key": "stage_1", "entry": {"verdict": "shortcut"}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return ranked_run(tmp_path_factory.mktemp("review"))


@pytest.fixture
def review(run: RunFolder) -> Iterator[Review]:
    (run.path / VERDICTS).unlink(missing_ok=True)
    with Review(run) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def ask(
    port: int,
    target: str,
    method: str = "GET",
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, str]:
    """A request with these headers and no others but what HTTP needs."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=20)
    given = {"Host": f"{LOOPBACK}:{port}", **(headers or {})}
    text = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    if text is not None:
        given.setdefault("Content-Length", str(len(text)))
    for name, value in given.items():
        if value:
            connection.putheader(name, value)
    connection.endheaders(text)
    answer = connection.getresponse()
    found = answer.read().decode()
    connection.close()
    return answer.status, found


def say(port: int, token: str, change: Any, **headers: str) -> tuple[int, str]:
    usual = {"Origin": f"http://{LOOPBACK}:{port}", "Content-Type": "application/json"}
    return ask(port, f"/verdicts?token={token}", "POST", change, {**usual, **headers})


def saved(run: RunFolder) -> Verdicts:
    return Verdicts.load(run.path / VERDICTS)


def test_the_page_is_served_and_may_talk_to_its_server_alone(review: Review) -> None:
    status, page = ask(review.server_port, f"/?token={review.token}")
    assert status == 200
    assert "default-src &#39;none&#39;; connect-src &#39;self&#39;;" in page
    assert review.token not in page


def test_a_verdict_is_in_the_file_when_it_is_answered(run: RunFolder, review: Review) -> None:
    status, answer = say(review.server_port, review.token, SHORTCUT)
    assert status == 200
    assert json.loads(answer)["patterns"] == {"stage_1": {"verdict": "shortcut"}}
    assert saved(run).called("shortcut") == ["stage_1"]
    say(review.server_port, review.token, {**SHORTCUT, "entry": None})
    assert saved(run).patterns == {}
    assert verify(run)["faults"] == []


@pytest.mark.parametrize("host", ["", "evil.example", "evil.example:{port}", "127.0.0.1", "::1"])
def test_other_hosts_are_refused(review: Review, host: str) -> None:
    named = {"Host": host.format(port=review.server_port)}
    assert ask(review.server_port, f"/?token={review.token}", headers=named)[0] == 403


@pytest.mark.parametrize("origin", ["", "null", "http://evil.example", "https://127.0.0.1:{port}"])
def test_other_origins_write_nothing(run: RunFolder, review: Review, origin: str) -> None:
    port = review.server_port
    assert say(port, review.token, SHORTCUT, Origin=origin.format(port=port))[0] == 403
    assert not (run.path / VERDICTS).exists()


def test_another_origin_reads_nothing(review: Review) -> None:
    named = {"Origin": "http://evil.example"}
    assert ask(review.server_port, f"/verdicts?token={review.token}", headers=named)[0] == 403


@pytest.mark.parametrize("target", ["/", "/verdicts", "/?token=", "/?token=wrong", "/?t={token}"])
def test_without_the_token_nothing_is_served(review: Review, target: str) -> None:
    status, said = ask(review.server_port, target.format(token=review.token))
    assert status == 403
    assert "stage_1" not in said


def test_without_the_token_nothing_is_written(run: RunFolder, review: Review) -> None:
    for token in ("", "wrong", review.token[:-1]):
        assert say(review.server_port, token, SHORTCUT)[0] == 403
    assert not (run.path / VERDICTS).exists()


@pytest.mark.parametrize(
    "path",
    ["/config.toml", "/report.html", "/../config.toml", "/%2e%2e/photos", "//etc/passwd", "/a/"],
)
def test_nothing_else_is_served(review: Review, path: str) -> None:
    assert ask(review.server_port, f"{path}?token={review.token}")[0] == 404


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"])
def test_other_methods_are_refused(review: Review, method: str) -> None:
    assert ask(review.server_port, f"/verdicts?token={review.token}", method)[0] >= 400


@pytest.mark.parametrize(
    "change",
    [
        b"not json",
        b"[" * 10_000,
        b"x" * 20_000,
        [],
        {"kind": "patterns"},
        {**SHORTCUT, "key": "stage_9"},
        {**SHORTCUT, "key": ["stage_1"]},
        {**SHORTCUT, "kind": "suspects", "entry": {"verdict": "wrong"}},
        {**SHORTCUT, "entry": {"verdict": "perhaps"}},
    ],
)
def test_what_is_no_verdict_is_refused(run: RunFolder, review: Review, change: Any) -> None:
    assert 400 <= say(review.server_port, review.token, change)[0] < 500
    assert not (run.path / VERDICTS).exists()


def test_a_form_of_another_page_cannot_write(run: RunFolder, review: Review) -> None:
    kinds = {"Content-Type": "application/x-www-form-urlencoded"}
    assert say(review.server_port, review.token, SHORTCUT, **kinds)[0] == 415
    assert not (run.path / VERDICTS).exists()


def test_only_the_loopback_is_listened_to(review: Review) -> None:
    assert review.server_address[0] == "127.0.0.1"


def test_one_review_of_a_run_at_a_time(run: RunFolder, review: Review) -> None:
    code = (
        "import sys; from sebra.cli.main import run; "
        f"sys.exit(run(['review', {str(run.path)!r}, '--no-browser']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "is being reviewed or written already" in done.stderr


def test_verdicts_of_an_earlier_ranking_are_not_written_over(tmp_path: Path) -> None:
    run = ranked_run(tmp_path)
    Verdicts({"run": "x", "data": "y", "ranking": "another"}).save(run.path / VERDICTS)
    with pytest.raises(UsageError, match="earlier ranking"):
        Review(run)


def started(run: RunFolder) -> tuple[subprocess.Popen[str], str, int]:
    process = subprocess.Popen(
        [sys.executable, "-m", "sebra", "review", str(run.path), "--no-browser", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    address = json.loads(process.stdout.readline())["address"]
    return process, address.split("token=")[1], int(address.split(":")[2].split("/")[0])


@pytest.mark.slow
def test_killed_while_saving_it_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    run = ranked_run(tmp_path)
    expected: dict[str, str] = {}
    for round_ in range(2):
        process, token, port = started(run)
        killer = threading.Timer(0.25 + 0.2 * round_, process.kill)
        killer.start()
        last, number = "", 0
        try:
            while True:
                number += 1
                last = f"round {round_}, {number}"
                entry = {"verdict": "shortcut", "note": last}
                status, _ = say(port, token, {**SHORTCUT, "entry": entry})
                assert status == 200
                expected["note"] = last
        except (OSError, http.client.HTTPException):
            pass  # it was killed
        process.wait(timeout=20)
        found = saved(run).patterns["stage_1"]["note"]
        assert found in (expected["note"], last)
        assert number > 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_well_when_it_is_told_to(tmp_path: Path, number: signal.Signals) -> None:
    process, _, _ = started(ranked_run(tmp_path))
    time.sleep(0.5)
    process.send_signal(number)
    assert process.wait(timeout=20) == 0
