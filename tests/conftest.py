"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

REPO = Path(__file__).resolve().parent.parent
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)

# Workers that each take all cores slow one another down; the variable must be set before torch
# is imported and reaches the processes that tests start. The process that starts the workers
# reads this file too: set there, they would inherit its count.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    _share = (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, min(4, _share))))


class CliResult(NamedTuple):
    """What a call of the command line left."""

    status: int
    stdout: str
    stderr: str


def pytest_configure() -> None:
    from hypothesis import settings

    # A busy machine is no reason to fail, and a failure must be there again in the next run.
    settings.register_profile("sebra", deadline=None, derandomize=True)
    settings.load_profile("sebra")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "SEBRA_LONG" not in os.environ:
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="takes minutes: make long"))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_collection_finish() -> None:
    """Benchmarks collect garbage after every run; all that was imported is left out of it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or fills the user's cache, and none reaches the network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEBRA_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("SEBRA_OFFLINE", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_control(_isolated: None) -> Iterator[None]:
    """A ranking in this process has one trial of each control, not as many as it has time for.

    They would be half of every test that ranks; what they say is tested in test_controls.py.
    """
    from sebra.ranking.controls import Controls, run_controls
    from sebra.workflows import rank

    def once(task: Any, make: Any, _seconds: float, negative: bool) -> Controls | None:
        return run_controls(task, make, 0.0, negative)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank, "run_controls", once)
        yield


@pytest.fixture(scope="session")
def repo_root() -> Path:
    return REPO


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of benchmark data; the test is skipped where it is absent."""
    folder = Path(os.environ.get("SEBRA_DATA") or REPO.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no benchmark data at {folder} (set SEBRA_DATA)")
    return folder.resolve()


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium; the test is skipped where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium found (make browser installs it)")


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Any]:
    """One for all page tests of a worker: a second one could not run beside it."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., CliResult]:
    """Runs `python -m sebra ARGUMENTS` as a process, in the test's own folder unless told."""

    def run(
        *arguments: object,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 240,
    ) -> CliResult:
        paths = [str(REPO / "src"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        done = subprocess.run(
            [sys.executable, "-m", "sebra", *map(str, arguments)],
            cwd=cwd or tmp_path,
            env={**environment, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )
        return CliResult(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def call_cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., CliResult]:
    """Like `cli`, inside this process: no start-up cost where a process of its own is no matter."""

    def call(*arguments: object, cwd: Path | None = None) -> CliResult:
        from sebra.cli.main import main
        from sebra.runs.meter import Meter

        monkeypatch.chdir(cwd or tmp_path)
        monkeypatch.setattr(sys, "argv", ["sebra", *map(str, arguments)])
        capfd.readouterr()
        try:
            returned: object = main()
        except SystemExit as stop:
            returned = stop.code
        Meter.whole_process = False  # a command that measures nothing leaves it to the next test
        out, err = capfd.readouterr()
        if isinstance(returned, str):
            return CliResult(1, out, f"{err}{returned}\n")
        return CliResult(int(returned or 0), out, err)  # type: ignore[call-overload]

    return call


@pytest.fixture
def features(tmp_path):
    import miniatures
    from sebra.workflows.prepared import Source

    return Source(
        str(miniatures.npz(tmp_path / "two.npz", **miniatures.features(90))), device="cpu"
    )


@pytest.fixture
def cars(tmp_path):
    """UrbanCars in miniature, to fine-tune a network that has weights."""
    from safetensors.torch import save_file

    import miniatures
    from sebra.engine.networks import NetworkSpec, build
    from sebra.workflows.prepared import Source

    network = build(NetworkSpec("test_resnet", (3, 32, 32), 2), 5)
    file = tmp_path / "weights.safetensors"
    save_file({k: v.contiguous() for k, v in network.body.state_dict().items()}, file)
    return Source(
        f"urbancars:{miniatures.urbancars(tmp_path / 'cars', aligned=8)}",
        device="cpu",
        mode="finetune",
        backbone="test_resnet",
        weights=str(file),
    )
