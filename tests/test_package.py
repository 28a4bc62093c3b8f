"""The package as a whole: what it exports, what importing it costs, what its files say."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sebra

HEAVY = ("torch", "pandas", "numpy", "sklearn", "timm", "PIL", "pyarrow", "scipy", "plotly")

# Written so that no pattern matches its own text.
FORBIDDEN = {
    "a package registry": r"py[p]i\.org|pythonh[o]sted|download\.pyt[o]rch|npmj[s]\.|deb\.deb[i]an",
    "a machine's path": r"(?<![\w.~$}-])/(?:wo[r]k|ro[o]t|hom[e]/\w+|User[s]/\w+|opt/whe[e]ls)/",
}


def modules_after(statement: str, repo_root: Path) -> set[str]:
    """The top-level modules a fresh interpreter holds after the statement."""
    code = f"{statement}\nimport sys; print(*{{n.partition('.')[0] for n in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(repo_root / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def tracked_files(repo_root: Path) -> list[Path]:
    if not (repo_root / ".git").exists() or not shutil.which("git"):
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=repo_root, capture_output=True, text=True, check=True
    ).stdout
    paths = [repo_root / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_importing_sebra_imports_no_heavy_library(repo_root: Path) -> None:
    assert modules_after("import sebra", repo_root).isdisjoint(HEAVY)


def test_help_is_printed_without_torch_or_pandas(repo_root: Path) -> None:
    statement = (
        "import sys; sys.argv = ['sebra', '--help']\n"
        "import contextlib, io\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    from sebra.cli.main import main\n"
        "    main()\n"
    )
    assert modules_after(statement, repo_root).isdisjoint({"torch", "pandas", "sklearn", "timm"})


def test_help_starts_in_a_third_of_a_second(repo_root: Path) -> None:
    """Processor time, the best of three: a busy machine does not count."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "sebra", "--help"],
            env={**os.environ, "PYTHONPATH": str(repo_root / "src")},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 0.3


def test_a_ranking_loads_no_scikit_learn(repo_root: Path, tmp_path: Path) -> None:
    """Its import takes seconds, of which a ranking of thousands of images has twenty."""
    statement = (
        f"import os; os.environ['SEBRA_CACHE'] = {str(tmp_path)!r}\n"
        "os.environ['OMP_NUM_THREADS'] = '1'\n"
        "import sebra; from sebra.workflows import rank; run = rank.run_controls\n"
        "rank.run_controls = lambda *given: run(*given[:2], 0.0, given[3])  # one of each\n"
        "sebra.rank('demo?n=100', method='peel', device='cpu')\n"
    )
    loaded = modules_after(statement, repo_root)
    assert "torch" in loaded
    assert not loaded & {"sklearn", "timm", "transformers"}


@pytest.mark.parametrize("name", [name for name in sebra.__all__ if name != "__version__"])
def test_every_promised_name_is_there_and_is_callable(name: str) -> None:
    assert callable(getattr(sebra, name))
    assert name in dir(sebra)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rnak'"):
        _ = sebra.rnak


def test_python_m_sebra_is_the_command_line(cli) -> None:
    assert "rank" in cli("--help").stdout
    wrong = cli("no-such-command")
    assert wrong.status == 2
    assert wrong.stdout == ""


def test_the_citation_names_this_version(repo_root: Path) -> None:
    citation = (repo_root / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE).group(1) == sebra.__version__


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_names(what: str, repo_root: Path) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{path.relative_to(repo_root)}:{number}: {line.strip()[:80]}"
        for path in tracked_files(repo_root)
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1
        )
        if pattern.search(line)
    ]
    assert found == []


def test_the_forbidden_patterns_recognise_what_they_forbid() -> None:
    registry, path = map(re.compile, FORBIDDEN.values())
    assert registry.search("https://files." + "python" + "hosted.org/packages")
    assert path.search("open('/wo" + "rk/main/x')")
    assert path.search("see /ro" + "ot/.cache")
    assert not path.search("src/sebra/workflows/rank.py, $HOME/wo" + "rk/x")


def test_the_architecture_page_names_exactly_the_rooms_there_are(repo_root: Path) -> None:
    page = (repo_root / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)
    rooms = [path.parent.name for path in (repo_root / "src" / "sebra").glob("*/__init__.py")]
    assert sorted(named) == sorted(rooms)


def test_every_make_target_of_the_docs_exists(repo_root: Path) -> None:
    makefile = (repo_root / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    pages = [repo_root / "README.md", repo_root / "CONTRIBUTING.md", *repo_root.glob("docs/*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)) <= targets


def test_the_index_page_has_no_link_that_leads_nowhere(repo_root: Path) -> None:
    pytest.importorskip("hatchling")
    sys.path.insert(0, str(repo_root))
    try:
        from hatch_build import standing_alone
    finally:
        sys.path.remove(str(repo_root))
    shown = standing_alone((repo_root / "README.md").read_text(encoding="utf-8"))
    assert not re.findall(r"\]\((?!https?:)", shown)
    assert "the notebook" in shown  # a link's text stays
