"""`sebra rank`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sebra.cli import options as o
from sebra.cli.output import Bars, emit, line, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sebra.workflows.prepared import Source
    from sebra.workflows.rank import RankOptions

MOST_PHASES = 4  # named with their seconds, the longest first


@o.takes(chosen=o.make_rank_options, source=o.make_source)
def rank(
    chosen: RankOptions,
    source: Source,
    out: o.Out = None,
    track: o.Track = None,
    resume: o.Resume = False,
    as_json: o.Json = False,
) -> None:
    """Rank every training sample of DATA by spuriosity (0 = most spurious of its class)."""
    from sebra.runs.folder import RunFolder
    from sebra.workflows.rank import rank as run_rank

    o.check_track(track)
    folder = RunFolder.create(out, "rank", resume)
    run = run_rank(source, chosen, folder, resume, Bars())
    o.send_track(track, folder)
    emit(run.metrics, as_json)
    if not as_json:
        show_ranking(run.metrics)
        line(f"run: {folder.path}")


def show_ranking(metrics: Mapping[str, Any]) -> None:
    """The figures of a ranking."""
    from sebra.showing.facts import QUALITY
    from sebra.showing.findings import in_words
    from sebra.workflows.verdicts import said_of

    found = metrics["ranking"]
    show_tuning(metrics.get("tuning", ()))
    verdict = metrics.get("verdict")
    if verdict is not None:
        line(f"{verdict['state']}: {verdict['reason']}")
    for number, pattern in enumerate(found.get("patterns", ()), 1):
        line(f"pattern {number}: {in_words(pattern)}")
    for said in said_of(metrics.get("verdicts", {})):
        line(said)
    rows = [[shown, found[key]] for key, (shown, _) in QUALITY.items() if key in found]
    for stage in found.get("stages", ()):
        given = ", ".join(f"{k} {v:.2f}" for k, v in stage["given"].items() if v is not None)
        rows.append([stage["name"], given])
    if rows and "trust" in found:
        rows.append(["trust", found["trust"]])
    if rows:
        table(f"ranking of {metrics['samples']} samples", ["figure", "value"], rows)
    seconds = metrics["seconds"]
    long = sorted(((v, k) for k, v in seconds.items() if k != "total"), reverse=True)[:MOST_PHASES]
    line(f"took {seconds['total']:.0f} s (" + ", ".join(f"{k} {v:.1f}" for v, k in long) + ")")


def show_tuning(trials: Sequence[Mapping[str, Any]]) -> None:
    """What `--tune` tried and chose."""
    if not trials:
        return
    names = list(trials[0]["settings"])
    rows = [
        [*(f"{t['settings'][n]:g}" for n in names), t["trust"], "chosen" if t["chosen"] else ""]
        for t in trials
    ]
    table("settings tried, by trust", [*names, "trust", ""], rows)
