"""What each section of the page shows, from what the run knows."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
from markupsafe import Markup

from sebra.showing import charts, facts, findings
from sebra.showing.album import Album, album_of, large_pictures, page_data, search_index
from sebra.showing.groups import group_context
from sebra.showing.picking import Picked, pick
from sebra.showing.ranked import Ranked, ranked_of
from sebra.showing.report import ReportInput
from sebra.showing.summary import summarise
from sebra.showing.thumbnails import data_address
from sebra.showing.words import figure, mean, shortened, visible

MOST_CLASS_CHARTS = 24
MOST_FAULTS = 300
MOST_SETTINGS = 200
HEATMAP_SIDE = 224
FIRST_SUSPECTS = 12
NETWORK_OPTIONS = ("mode", "backbone", "weights", "image-size")
ENDS = "rank"  # the heat maps that contrast both ends of a class


def page_context(run: ReportInput) -> dict[str, Any]:
    """Everything the templates use."""
    ranked = ranked_of(run.table, run.samples)
    picked = pick(ranked)
    album = album_of(ranked, picked.by_importance(), run.thumbnail)
    cues = facts.cues(run.samples)
    biases = facts.biases(ranked, run.metrics.get("ranking", {}).get("patterns", ()))
    data = _shell_data(run)
    return {
        "title": visible(run.title),
        "data_name": visible(run.data or run.samples.source or run.samples.name),
        "version": run.version,
        "kind": run.samples.kind,
        "n_samples": len(ranked),
        "n_classes": len(ranked.classes),
        "summary": summarise(
            ranked,
            cues,
            biases,
            run.metrics,
            run.comparisons,
            data,
            shlex.quote(run.folder) if run.folder else "",
        ),
        "classes": _classes(run, ranked, picked, album),
        "hidden_classes": len(ranked.classes) - len(picked.classes),
        "biases": _biases(run, ranked, picked, album, biases),
        "suspects": _suspects(ranked, picked, album),
        "groups": group_context(run, ranked, cues),
        "quality": _quality(run),
        "training": _training(run),
        "faults": run.faults[:MOST_FAULTS],
        "n_faults": len(run.faults),
        "command": visible(run.command),
        "notes": [visible(str(n)) for n in run.notes],
        "settings": _settings(run),
        "seconds": _seconds(run),
        "album": album,
        "model": run.metrics.get("model"),
        "checks": run.metrics.get("checks", ()),
        "verdicts": run.verdicts,
        "data": page_data(ranked, album) | {"verdicts": run.verdicts, "originals": run.originals},
        "index": search_index(ranked),
        # Samples of the galleries carry their picture in the markup, so that it shows without
        # scripts; the others are filled in from here.
        "pictures": _later_pictures(picked, album),
        "large": large_pictures(ranked, album, picked.most_telling(), run.thumbnail),
    }


def _shell_data(run: ReportInput) -> str:
    """The data set and the network's options, as the next command needs them to use both again."""
    words = [run.data or run.samples.source or "DATA"]
    for option in NETWORK_OPTIONS:
        value = run.config.get(option.replace("-", "_"))
        if value is not None:
            words += [f"--{option}", str(value)]
    return shlex.join(words)


def _classes(
    run: ReportInput, ranked: Ranked, picked: Picked, album: Album
) -> list[dict[str, Any]]:
    counts = facts.bucket_counts(ranked)
    out = []
    for place, c in enumerate(picked.classes):
        label = ranked.classes[c]
        chart = Markup("")
        if place < MOST_CLASS_CHARTS:
            chart = charts.buckets(counts[label], label, f"c-class{c}")
        out.append(
            {
                "number": c,
                "label": label,
                "n": len(ranked.orders[c]),
                "chart": chart,
                "heatmap": _heatmap(run.heatmaps.get(ENDS, {}), label),
                "most": album.take(picked.most[c].tolist()),
                "least": album.take(picked.least[c].tolist()),
                "spread": [e.number for e in album.take(picked.spread[c].tolist())],
            }
        )
    return out


def _biases(
    run: ReportInput, ranked: Ranked, picked: Picked, album: Album, biases: list[facts.Bias]
) -> list[dict[str, Any]]:
    out = []
    for bias in biases:
        maps = run.heatmaps.get(bias.stage, {})
        panels: list[dict[str, Any]] = [
            {
                "label": ranked.classes[contrast.label],
                "share": bias.per_class[ranked.classes[contrast.label]],
                "follows": album.take(contrast.follows.tolist()),
                "breaks": album.take(contrast.breaks.tolist()),
                "heatmap": _heatmap(maps, ranked.classes[contrast.label]),
            }
            for contrast in picked.contrasts[bias.stage]
        ]
        said = {c for w in bias.found.get("words") or () for c in w["phrases"]}
        # Where a word is of, and those that break it are.
        panels.sort(key=lambda panel: (panel["label"] not in said, round(panel["share"], 2)))
        out.append(
            {
                "bias": bias,
                "sentence": findings.sentence(bias.found, bias.per_class),
                "telling": findings.telling(bias.found),
                "rests": findings.rests(bias.found),
                "phrases": findings.phrases_of(bias.found),
                "histograms": findings.histograms(ranked, bias.stage),
                "panels": panels,
                "hidden": len(ranked.classes) - len(panels),
            }
        )
    return out


def _heatmap(maps: Any, label: str) -> str | None:
    return data_address(maps[label], HEATMAP_SIDE) if label in maps else None


def _suspects(ranked: Ranked, picked: Picked, album: Album) -> dict[str, Any] | None:
    """The most suspect samples with a reason each; None where nothing was looked for."""
    if ranked.noise is None:
        return None
    entries = album.take(picked.suspects.tolist())
    return {
        "first": FIRST_SUSPECTS,
        "rows": [
            {
                "entry": entry,
                "noise": float(ranked.noise[entry.row]),
                "suggested": ranked.suggested[entry.row] if ranked.suggested else "",
                "why": _why(ranked, entry.row),
            }
            for entry in entries
        ],
        "n": int(np.count_nonzero(ranked.noise >= 0.5)),
    }


def _why(ranked: Ranked, row: int) -> str:
    if ranked.why and ranked.why[row]:
        return visible(ranked.why[row])
    label = ranked.classes[ranked.labels[row]]
    size = len(ranked.orders[ranked.labels[row]])
    place = f"ranked {ranked.rank[row] + 1} of {size} in its class"
    suggested = ranked.suggested[row] if ranked.suggested else ""
    if suggested and suggested != label:
        return f"fits another class better; {place}"
    return f"unlike the rest of its class; {place}"


def _quality(run: ReportInput) -> dict[str, Any]:
    """Ranking quality overall and per class, as far as it was measured."""
    ranking = run.metrics.get("ranking", {})
    known = {k: v for k, v in facts.QUALITY.items() if mean(ranking.get(k)) is not None}
    per_class = ranking.get("per_class", {}) if known else {}
    return {
        "figures": [
            (label, figure(ranking[k], 2 if k != "pd" else 1), meaning)
            for k, (label, meaning) in known.items()
        ],
        "columns": [facts.QUALITY[k][0] for k in known if k != "pd"],
        "per_class": [
            (label, [figure(values.get(k), 2) for k in known if k != "pd"])
            for label, values in list(per_class.items())[:200]
        ],
    }


def _training(run: ReportInput) -> list[Markup]:
    """Charts over the rounds."""
    history = run.history
    if history is None or not len(history) or "epoch" not in history:
        return []
    out = []
    epochs = np.sort(history["epoch"].unique())
    if "learned" in history and "label" in history:
        table = history.pivot_table(index="epoch", columns="label", values="learned")
        shares = {str(c): table[c].to_numpy() for c in table.columns}
        out.append(charts.learned(epochs, shares, "c-learned"))
    by_epoch = history.groupby("epoch")
    cues = [c for c in history.columns if str(c).startswith("cue_")]
    if cues:
        series = {str(c).removeprefix("cue_"): by_epoch[c].mean().to_numpy() for c in cues}
        title = "What the network’s predictions agree with, by round"
        out.append(charts.lines(epochs, series, "agreement, %", title, "c-cues"))
    if "loss" in history and history["loss"].notna().any():
        loss = {"loss": by_epoch["loss"].mean().to_numpy()}
        out.append(charts.lines(epochs, loss, "loss", "Training loss by round", "c-loss"))
    return out


def _settings(run: ReportInput) -> list[tuple[str, str]]:
    """The configuration, flattened."""
    out: list[tuple[str, str]] = []

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), inner)
        elif isinstance(value, (list, tuple)):
            out.append((prefix, ", ".join(str(v) for v in value)))
        else:
            out.append((prefix, str(value)))

    walk("", dict(run.config))
    return [(visible(k), shortened(visible(v), 1000)) for k, v in out[:MOST_SETTINGS]]


def _seconds(run: ReportInput) -> list[tuple[str, str]]:
    seconds = run.metrics.get("seconds", {})
    out = [(str(k), f"{figure(v)} s") for k, v in seconds.items()]
    if mean(run.metrics.get("peak_memory_mib")) is not None:
        out.append(("peak memory", f"{figure(run.metrics['peak_memory_mib'], 0)} MiB"))
    return out


def _later_pictures(picked: Picked, album: Album) -> dict[int, str]:
    inline = {i for c in picked.classes for i in (*picked.most[c], *picked.least[c])}
    return {
        e.number: e.picture for e in album.entries.values() if e.picture and e.row not in inline
    }
