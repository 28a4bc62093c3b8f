"""`sebra check`: conditions that a data set or a model must hold, for every build."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sebra.engine.session import ProgressSink
from sebra.errors import UsageError, reason
from sebra.ranking.noise import SUSPECT
from sebra.ranking.patterns import matched
from sebra.ranking.ranking import Ranking
from sebra.runs.folder import METRICS, RANKING, RunFolder
from sebra.samples.open import open_samples
from sebra.samples.verdicts import MEANT, SHORTCUT
from sebra.whole import json_of, of_toml
from sebra.workflows.verdicts import judged, verdicts_of
from sebra_tools.answers import answers_of, is_model
from sebra_tools.leaning import leaning

PATTERNS = "patterns.json"
PYPROJECT = "pyproject.toml"


@dataclass(frozen=True)
class Conditions:
    """The limits; one that is None is not looked at.

    largest_drop: points of accuracy that a model may lose against a pattern not called meant.
    unreviewed: patterns without a verdict. suspects: share of samples that look mislabelled and
    were not called right. worst_group: percent, at least, in the worst discovered group of a model.
    returned: patterns called a shortcut before that are there again, or that a model leans on.
    """

    largest_drop: float | None = None
    unreviewed: int | None = 0
    suspects: float | None = None
    worst_group: float | None = None
    returned: int | None = 0


NAMES = tuple(f.name for f in dataclasses.fields(Conditions))


@dataclass(frozen=True)
class Seen:
    """What the conditions look at. before: the verdict, or "", on each pattern known before."""

    ranking: Ranking
    said: Mapping[str, str]
    right: set[str]
    before: Mapping[str, str]
    new: list[str]
    old_suspects: set[str]
    drops: Mapping[str, float]
    leans: set[str]
    model: Mapping[str, Any] | None


def conditions_of(file: str | None, given: Mapping[str, Any]) -> Conditions:
    """From a file, else from `sebra.toml` or `pyproject.toml` here; options that are given win."""
    found = _settings(file)
    unknown = [name for name in found if name not in NAMES]
    if unknown:
        raise UsageError(
            f"check: {unknown[0]!r} is not a condition (there are: {', '.join(NAMES)})"
        )
    wrong = [k for k, v in found.items() if isinstance(v, bool) or not isinstance(v, (int, float))]
    if wrong:
        raise UsageError(f"check: {wrong[0]} = {found[wrong[0]]!r:.40} is not a number")
    return Conditions(**{**found, **{k: v for k, v in given.items() if v is not None}})


def _settings(file: str | None) -> dict[str, Any]:
    for name in ("sebra.toml", PYPROJECT) if file is None else (file,):
        path = Path(name)
        if not path.is_file():
            continue
        try:
            found: Any = of_toml(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: not TOML ({reason(error)})") from None
        for key in ("tool", "sebra", "check") if path.name == PYPROJECT else ("check",):
            found = found.get(key, {}) if isinstance(found, dict) else {}
        if found and not isinstance(found, dict):
            raise UsageError(f"{path}: check = {found!r:.40} is not a table of conditions")
        if found:
            return dict(found)
    if file is not None:
        raise UsageError(f"--config: {file} holds no conditions")
    return {}


def check(
    folder: RunFolder,
    conditions: Conditions,
    baseline: str | None = None,
    verdicts: str | None = None,
    predictions: str | None = None,
    progress: ProgressSink | None = None,
) -> dict[str, Any]:
    """`conditions`: of each its limit, what was found, whether it holds, and why; `passed`."""
    if not folder.has(RANKING):
        raise UsageError(f"{folder.path}: no {RANKING} in it; give an audit, rank or debias run")
    seen = _seen(folder, baseline, verdicts, predictions, progress)
    rows = []
    for name in NAMES:
        limit = getattr(conditions, name)
        if limit is not None:
            value, why = _FINDERS[name](seen)
            holds = value is not None and (
                value >= limit if name == "worst_group" else value <= limit
            )
            rows.append(
                {"condition": name, "limit": limit, "found": value, "holds": holds, "why": why}
            )
    out = {"run": str(folder.path), "baseline": baseline, "passed": all(r["holds"] for r in rows)}
    return {**out, "conditions": rows}


def _seen(
    folder: RunFolder,
    baseline: str | None,
    verdicts: str | None,
    predictions: str | None,
    progress: ProgressSink | None,
) -> Seen:
    ranking, own = Ranking.load(folder.path), verdicts_of(folder)
    said = {k: e["verdict"] for k, e in own.patterns.items()}
    before: dict[str, str] = {}
    old: set[str] = set()
    known: set[str] = set()
    if baseline is not None:
        run = RunFolder.open(baseline)
        earlier = Ranking.load(run.path)
        theirs = {k: e["verdict"] for k, e in verdicts_of(run).patterns.items()}
        before = {k: theirs.get(was, "") for k, was in matched(ranking, earlier).items()}
        known, old = set(before), _suspects(earlier)
    if verdicts is not None:
        file, theirs_ranking = judged(verdicts, None)
        for k, was in matched(ranking, theirs_ranking).items():
            before[k] = file.patterns.get(was, {}).get("verdict", "")
    model = _model(folder, predictions, progress)
    patterns = {p["stage"]: p for p in model["patterns"]} if model else _plain(folder, ranking)
    return Seen(
        ranking=ranking,
        said={**{k: v for k, v in before.items() if v}, **said},
        right={k for k, e in own.suspects.items() if e["verdict"] == "right"},
        before=before,
        new=[name for name in ranking.stages if name not in known],
        old_suspects=old,
        drops={k: p["drop"] for k, p in patterns.items() if "drop" in p},
        leans={k for k, p in patterns.items() if p.get("leans")},
        model=model,
    )


def _model(
    folder: RunFolder, predictions: str | None, progress: ProgressSink | None
) -> dict[str, Any] | None:
    """With and against each pattern: of the predictions given, or of the run's own model."""
    asked = predictions or (str(folder.path) if is_model(str(folder.path)) else None)
    if asked is not None:
        samples = open_samples(str(folder.read_config().get("data", "")))
        return leaning(answers_of(asked, samples), folder, samples, progress)
    found: dict[str, Any] | None = (
        folder.read_metrics().get("model") if folder.has(METRICS) else None
    )
    return found


def _plain(folder: RunFolder, ranking: Ranking) -> dict[str, dict[str, Any]]:
    """Of plain training, as the ranking measured it."""
    if not folder.has(PATTERNS):
        return {}
    try:
        found = json_of((folder.path / PATTERNS).read_text(encoding="utf-8"))["patterns"]
        drops = [float(p["with_it"]["accuracy"] - p["against_it"]["accuracy"]) for p in found]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{folder.path / PATTERNS}: unreadable ({reason(error)})") from None
    return {k: {"drop": drop} for k, drop in zip(ranking.stages, drops, strict=False)}


def _suspects(ranking: Ranking) -> set[str]:
    table = ranking.table
    return set(table["id"][table["noise"] >= SUSPECT]) if "noise" in table else set()


Found = tuple[float | None, str]


def _drop(seen: Seen) -> Found:
    counted = {k: d for k, d in seen.drops.items() if k in seen.new and seen.said.get(k) != MEANT}
    if not counted:
        missing = bool(seen.ranking.stages) and not seen.drops
        return (None, "not measured: give --predictions") if missing else (0.0, "no pattern counts")
    name = max(counted, key=lambda k: counted[k])
    who = seen.model["name"] if seen.model else "plain training"
    return counted[name], f"{who} against {name}"


def _unreviewed(seen: Seen) -> Found:
    left = [name for name in seen.new if name not in seen.said]
    return len(left), ", ".join(left) or "every pattern has a verdict, or was there before"


def _suspect_share(seen: Seen) -> Found:
    if "noise" not in seen.ranking.table:
        return None, "not measured: the ranking has no noise column"
    left = _suspects(seen.ranking) - seen.old_suspects - seen.right
    return len(left) / max(1, len(seen.ranking)), f"{len(left)} of {len(seen.ranking)} samples"


def _worst_group(seen: Seen) -> Found:
    if seen.model is None:
        return None, "not measured: give a model run or --predictions"
    worst = seen.model.get("worst") or {"name": "all samples", "accuracy": seen.model["accuracy"]}
    return worst["accuracy"], str(worst["name"])


def _returned(seen: Seen) -> Found:
    """Of what was called a shortcut before, not in this run: its own verdicts are no return."""
    called = [name for name, verdict in seen.before.items() if verdict == SHORTCUT]
    back = [name for name in called if seen.model is None or name in seen.leans]
    return len(back), ", ".join(back) or "none"


_FINDERS: dict[str, Callable[[Seen], Found]] = {
    "largest_drop": _drop,
    "unreviewed": _unreviewed,
    "suspects": _suspect_share,
    "worst_group": _worst_group,
    "returned": _returned,
}


def junit(found: Mapping[str, Any]) -> str:
    """JUnit XML, as build servers show it: one test case per condition."""
    from xml.etree import ElementTree

    rows = found["conditions"]
    failed = str(sum(not row["holds"] for row in rows))
    suite = ElementTree.Element(
        "testsuite", name="sebra check", tests=str(len(rows)), failures=failed
    )
    for row in rows:
        case = ElementTree.SubElement(
            suite, "testcase", classname="sebra.check", name=row["condition"]
        )
        if not row["holds"]:
            said = f"found {shown(row['found'])}, limit {shown(row['limit'])}: {row['why']}"
            ElementTree.SubElement(case, "failure", message=said)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
