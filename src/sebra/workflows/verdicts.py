"""The verdicts of a run: read, carried over to another ranking, acted on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from sebra.checksums import of_file
from sebra.errors import UsageError
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import CONFIG, RANKING, RunFolder
from sebra.samples.verdicts import SHORTCUT, UNSURE, VERDICTS, Verdicts

log = logging.getLogger(__name__)


def verdicts_of(folder: RunFolder, strict: bool = False) -> Verdicts:
    """What was said of a run so far; nothing yet where no file is there.

    strict: verdicts of an earlier ranking in the same folder are refused, not passed over.
    """
    data = str(folder.read_config().get("data", "")) if folder.has(CONFIG) else ""
    of = {"run": str(folder.path), "data": data, "ranking": of_file(folder.path / RANKING)}
    if not folder.has(VERDICTS):
        return Verdicts(of)
    found = Verdicts.load(folder.path / VERDICTS)
    if found.of["ranking"] == of["ranking"]:
        return found
    said = f"{folder.path / VERDICTS}: is about an earlier ranking in this folder"
    if strict:
        raise UsageError(f"{said}; move it away, or carry it over with --verdicts")
    log.warning("%s and is not shown", said)
    return Verdicts(of)


def judged(file: str, run: str | None) -> tuple[Verdicts, Ranking]:
    """Verdicts and the ranking they are about: in `run`, else beside the file or where it says."""
    said = Verdicts.load(file)
    places = [Path(run)] if run is not None else [Path(file).parent, Path(said.of["run"])]
    for place in places:
        ranked = place / RANKING if place.is_dir() else place
        if ranked.is_file() and of_file(ranked) == said.of["ranking"]:
            return said, Ranking.load(place)
    where = f"{run} is another one" if run is not None else f"it was in {said.of['run']}"
    raise UsageError(f"--verdicts: {file} is about a ranking that is not here ({where})")


def shortcuts_alone(file: str, run: str | None) -> tuple[Ranking, str]:
    """The ranking by the patterns that were called a shortcut, and what is left alone, in words."""
    said, ranking = judged(file, run)
    kept = said.called(SHORTCUT)
    others = [name for name in ranking.stages if name not in kept]
    unsaid = [name for name in others if name not in said.patterns]
    note = f"verdicts: {_many(len(kept))} called a shortcut, {len(others)} left alone"
    if unsaid:
        note += f", {len(unsaid)} of them without a verdict"
    return ranking.only(kept), note


def carry_over(earlier: tuple[Verdicts, Ranking], folder: RunFolder) -> dict[str, dict[str, str]]:
    """Writes the verdicts that hold for this run too, and returns those of its patterns.

    A pattern is the same where the same samples follow it; a sample where it has the same id.
    """
    from sebra.ranking.patterns import matched  # loads torch, which a report does without

    before, ranking_before = earlier
    ranking, now = Ranking.load(folder.path), verdicts_of(RunFolder(folder.path))
    for name, was in matched(ranking, ranking_before).items():
        if was in before.patterns:
            now.patterns[name] = before.patterns[was]
    known = set(ranking.table["id"].astype(str))
    now.suspects = {k: v for k, v in before.suspects.items() if k in known}
    now.marks = {k: v for k, v in before.marks.items() if k in known}
    now.save(folder.path / VERDICTS)
    return now.patterns


def write_patterns(folder: RunFolder, ranking: Ranking, said: dict[str, dict[str, str]]) -> None:
    """`patterns.json`, each pattern with the verdict it came with; `review` keeps later ones."""
    found = zip(ranking.stages, ranking.details.get("patterns", ()), strict=False)
    patterns = [{**p, "verdict": said.get(k, {}).get("verdict", UNSURE)} for k, p in found]
    if "patterns" in ranking.details:
        folder.write_patterns(patterns)


def said_of(patterns: dict[str, dict[str, Any]]) -> list[str]:
    """Verdicts on patterns in words, one line each."""
    return [
        f"{name}: called {entry['verdict']}" + (f" ({entry['note']})" if "note" in entry else "")
        for name, entry in patterns.items()
    ]


def _many(n: int) -> str:
    return f"{n} pattern" if n == 1 else f"{n} patterns"
