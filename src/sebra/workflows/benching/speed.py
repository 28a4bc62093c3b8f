"""`sebra bench speed`: how fast, beside the loops such code is usually written with."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sebra import __version__
from sebra.debiasing.contrastive import ContrastiveConfig
from sebra.engine.device import choose_device, load_optimisers, setup
from sebra.engine.session import ProgressSink, Session
from sebra.errors import UsageError
from sebra.measuring.ranks import quality_of
from sebra.ranking.ranking import ranks_within_classes
from sebra.ranking.sebra import FULL, SebraConfig
from sebra.runs.config import PRESETS, build_config
from sebra.runs.folder import RunFolder
from sebra.runs.meter import Meter
from sebra.samples.table import ImageArray, Samples
from sebra.workflows.bench import BenchRun, write_tables
from sebra.workflows.benching.facts import facts
from sebra.workflows.benching.speed_rates import (
    Bench,
    Line,
    debias_lines,
    select_lines,
    train_lines,
)
from sebra.workflows.benching.speed_scale import growth, large_line, stream_lines
from sebra.workflows.benching.speed_tools import (
    fitted_exponent,
    measured_peak,
    peak_memory_mib,
    reference_module,
    reset_memory,
    wait,
)
from sebra.workflows.benching.tables import ABSENT, Table
from sebra.workflows.prepare import Prepared, Source, prepare
from sebra.workflows.rank import RankOptions
from sebra.workflows.rank import rank as run_rank

ON_IMAGES = ("train", "select", "ranking", "debias", "stream")
SECTIONS = (*ON_IMAGES, "growth", "large")
USUAL = ("train", "select", "ranking", "debias", "stream", "growth")
_WORKERS = 8
_FEWER = 0.25  # of the draws, at a rate that makes up for it (see `_quick`)
_AFTER = ("noise", "trust")  # judged when the ranking is finished; the reference does neither


@dataclass(frozen=True)
class SpeedOptions:
    """What to measure.

    overrides: settings of the ranking; the reference takes those that it knows. batch: of the
    throughput sections. sizes: numbers of samples for `growth`. large: samples, width and classes
    for `large`. reference: the file of the reference loops.
    """

    sections: tuple[str, ...] = USUAL
    seeds: int = 1
    preset: str | None = None
    overrides: tuple[str, ...] = ()
    batch: int = 128
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    large: tuple[int, int, int] = (1_300_000, 2_048, 1_000)
    reference: str | None = None

    def __post_init__(self) -> None:
        unknown = [s for s in self.sections if s not in SECTIONS]
        if unknown:
            known = ", ".join(SECTIONS)
            raise UsageError(f"--sections: no section {unknown[0]!r}; there are {known}")
        if self.seeds < 1 or self.batch < 2 or min(self.sizes, default=1) < 100:
            raise UsageError("--seeds, --batch, --sizes: need at least 1, 2 and 100")


def default_data() -> str:
    """UrbanCars in `$SEBRA_DATA` where it is, else the built-in data set."""
    folder = Path(os.environ.get("SEBRA_DATA") or Path("..") / "shared" / "data") / "urbancars"
    return f"urbancars:{folder}" if folder.is_dir() else "demo"


def speed(
    source: Source,
    options: SpeedOptions,
    folder: RunFolder,
    progress: ProgressSink | None = None,
) -> BenchRun:
    """Measures the sections one after the other; writes the table and `metrics.json`."""
    device = choose_device(source.device)
    setup(device)
    load_optimisers()
    meter, session = Meter(), Session(progress=progress)
    folder.write_config(
        {"command": "bench speed", "version": __version__, **source.to_dict(), **_settings(options)}
    )
    lines: list[Line] = []
    extra: dict[str, Any] = {}
    if any(s in ON_IMAGES for s in options.sections):
        lines += _on_images(source, options, session, meter, extra)
    if "growth" in options.sections:
        session.note("growth")
        with meter.phase("growth"):
            extra["growth"] = _growth(options, device)
    if "large" in options.sections:
        session.note("large")
        with meter.phase("large"):
            lines.append(large_line(*options.large, device))
    metrics: dict[str, Any] = {
        "version": __version__,
        **facts(device),
        "speed": {line.name: _figures(line) for line in lines},
        **extra,
        **meter.result(),
        "run": str(folder.path),
    }
    run = BenchRun(metrics, [_table(lines, source, extra, device)])
    write_tables(folder, run.tables)
    folder.write_metrics(metrics)
    return run


def _settings(options: SpeedOptions) -> dict[str, Any]:
    found = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(options).items()}
    return {k: v for k, v in found.items() if v is not None}


def _on_images(
    source: Source, options: SpeedOptions, session: Session, meter: Meter, extra: dict[str, Any]
) -> list[Line]:
    reference = reference_module(options.reference)
    source = replace(source, mode="finetune")
    prepared = prepare(source, session, meter)
    samples, _ = prepared.split("train")
    if not isinstance(samples.content, ImageArray):
        raise UsageError(f"{source.data}: holds {samples.kind}; speed is measured on images")
    pixels = samples.content.pixels[samples.content.rows]
    preset = options.preset or _preset_of(source.data)
    config: SebraConfig = build_config(
        SebraConfig, "rank", "sebra", prepared.mode, preset, options.overrides
    )
    peak = measured_peak(prepared.device)
    extra["peak_tflops"] = peak / 1e12
    workers = min(_WORKERS, os.cpu_count() or 1)
    bench = Bench(
        task=prepared.task("train"),
        pixels=pixels,
        labels=samples.labels,
        reference=reference,
        settings=_reference_settings(reference, config, options.batch, workers),
        peak=peak,
        workers=workers,
    )
    contrastive: ContrastiveConfig = build_config(
        ContrastiveConfig, "debias", "sebra", prepared.mode, preset
    )
    work: dict[str, Callable[[], list[Line]]] = {
        "train": lambda: train_lines(bench),
        "select": lambda: select_lines(bench),
        "ranking": lambda: _ranking(prepared, bench, config, options, preset),
        "debias": lambda: debias_lines(bench, contrastive),
        "stream": lambda: stream_lines(bench),
    }
    lines = []
    for name, measure in work.items():
        if name in options.sections:
            session.note(name)
            with meter.phase(name):
                lines += measure()
    return lines


def _reference_settings(reference: Any, config: SebraConfig, batch: int, workers: int) -> Any:
    return reference.Settings(
        batch=batch,
        epochs=config.epochs,
        optimizer=config.optimizer,
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        p_critical=config.p_critical,
        beta=config.beta,
        workers=workers,
    )


def _preset_of(data: str) -> str | None:
    layout, colon, _ = data.partition(":")
    known = colon and (PRESETS / "paper" / f"{layout}.toml").is_file()
    return f"paper/{layout}" if known else None


def _ranking(
    prepared: Prepared, b: Bench, config: SebraConfig, options: SpeedOptions, preset: str | None
) -> list[Line]:
    """Finished rankings from the warm cache on both sides, with the quality of both.

    Ours twice: with the settings of the other side, and with a quarter of the draws at a higher
    rate, which ranks nearly as well. An epoch before each does not count: the first of a process
    tunes its kernels for seconds, on either side.
    """
    lines = [_our_ranking(prepared, options, preset, "finished ranking", ())]
    if config.draws == FULL:
        name = "finished ranking, a quarter of the draws"
        lines.append(_our_ranking(prepared, options, preset, name, _quick(config)))
    s = replace(b.settings, batch=min(config.batch or options.batch, len(b.task)))
    pictures, seconds, quality = b.pictures(), [], []

    def reference(seed: int, settings: Any) -> tuple[float, Any, Any]:
        torch.manual_seed(seed)
        network = replace(b, task=replace(b.task, seed=seed)).plain_network()
        wait(prepared.device)
        start = time.perf_counter()
        ranker = b.reference.Ranker(network, pictures, b.labels, settings, prepared.device)
        bucket, score = ranker.rank()
        return time.perf_counter() - start, bucket, score

    reference(0, replace(s, epochs=1))
    for seed in range(options.seeds):
        spent, bucket, score = reference(seed, s)
        seconds.append(spent)
        quality.append(_somers_d(prepared.samples, bucket, score, b.labels))
    for line in lines:
        line.reference = float(np.mean(seconds))
        line.extra |= {"reference_seconds": seconds, "reference_somers_d": quality}
    return lines


def _quick(config: SebraConfig) -> tuple[str, ...]:
    """Fewer draws; the rate grows in proportion with SGD, with the root under Adam."""
    faster = 1 / _FEWER if config.optimizer == "sgd" else _FEWER**-0.5
    return f"draws={_FEWER:g}", f"lr={config.lr * faster:g}"


def _our_ranking(
    prepared: Prepared,
    options: SpeedOptions,
    preset: str | None,
    name: str,
    overrides: tuple[str, ...],
) -> Line:
    seconds, phases, rounds, quality = [], [], [], []
    reset_memory(prepared.device)
    chosen = RankOptions(preset=preset, overrides=(*options.overrides, *overrides))
    run_rank(prepared.source, replace(chosen, overrides=(*chosen.overrides, "epochs=1")))
    for seed in range(options.seeds):
        wait(prepared.device)
        start = time.perf_counter()
        run = run_rank(replace(prepared.source, seed=seed), chosen)
        took = time.perf_counter() - start
        phases.append(run.metrics["seconds"])
        seconds.append(took - sum(phases[-1].get(after, 0.0) for after in _AFTER))
        rounds.append(run.metrics["ranking"].get("rounds"))
        quality.append(run.metrics["ranking"].get("somers_d"))
    line = Line(name, "s", float(np.mean(seconds)), memory_mib=peak_memory_mib(prepared.device))
    line.extra = {
        "seconds": seconds,
        "phases": phases,
        "rounds": rounds,
        "somers_d": quality,
    }
    return line


def _somers_d(samples: Samples, bucket: Any, score: Any, labels: Any) -> float | None:
    rank = ranks_within_classes(bucket, score, labels)
    quality = quality_of(samples, samples.rows("train"), rank)
    return None if quality is None else float(quality["somers_d"])


def _growth(options: SpeedOptions, device: torch.device) -> dict[str, Any]:
    found = growth(sorted(options.sizes), device)
    fitted = [(n, s) for n, s in found if n >= 10_000] or found
    if len(fitted) < 2:
        fitted = found
    sizes, seconds = [n for n, _ in fitted], [s for _, s in fitted]
    # The exponent that N log N would show over the same sizes.
    n_log_n = fitted_exponent(sizes, [n * float(np.log(n)) for n in sizes])
    return {
        "samples": [n for n, _ in found],
        "seconds": [s for _, s in found],
        "exponent": fitted_exponent(sizes, seconds),
        "exponent_of_n_log_n": n_log_n,
    }


def _figures(line: Line) -> dict[str, Any]:
    named = {
        "unit": line.unit,
        "sebra": line.ours,
        "eager": line.eager,
        "reference": line.reference,
        "over_eager": line.ratio(line.eager),
        "over_reference": line.ratio(line.reference),
        "gpu_busy": line.busy,
        "of_peak": line.of_peak,
        "peak_gpu_memory_mib": line.memory_mib,
        **line.extra,
    }
    return {k: v for k, v in named.items() if v is not None}


def _table(lines: list[Line], source: Source, extra: dict[str, Any], device: torch.device) -> Table:
    table = Table(f"speed on {device.type}: {source.backbone or 'default network'}, {source.data}")
    for line in lines:
        rate = _shown_seconds if line.unit == "s" else _shown_rate
        table.shown.append(
            {
                "what": line.name,
                "unit": line.unit,
                "Sebra": rate(line.ours),
                "eager bf16": _text(line.eager, rate),
                "reference": _text(line.reference, rate),
                "× eager": _text(line.ratio(line.eager), "{:.2f}".format),
                "× reference": _text(line.ratio(line.reference), "{:.1f}".format),
                "GPU busy": _text(line.busy, "{:.0%}".format),
                "of peak": _text(line.of_peak, "{:.0%}".format),
                "GPU MiB": _text(line.memory_mib, "{:,.0f}".format),
            }
        )
        table.figures.append({"what": line.name, **_scalars(_figures(line))})
        if "somers_d" in line.extra:
            found = (line.extra["somers_d"], line.extra["reference_somers_d"])
            both = ["/".join("–" if d is None else f"{d:.3f}" for d in ds) for ds in found]
            table.remarks.append(
                f"Somers' D by seed, {line.name}: Sebra {both[0]}, reference {both[1]}"
            )
    if "peak_tflops" in extra:
        table.remarks.append(f"measured peak: {extra['peak_tflops']:.1f} TFLOP/s")
    if "growth" in extra:
        g = extra["growth"]
        pairs = zip(g["samples"], g["seconds"], strict=True)
        listed = ", ".join(f"{n:,}: {s:.2f} s" for n, s in pairs)
        table.remarks.append(
            f"growth, features: {listed}; fitted N^{g['exponent']:.2f} "
            f"(N·log N would be N^{g['exponent_of_n_log_n']:.2f})"
        )
    if not table.shown:
        table.shown.append({"what": ABSENT})
    return table


def _shown_seconds(value: float) -> str:
    return f"{value:.2f}"


def _shown_rate(value: float) -> str:
    return f"{value:,.0f}"


def _scalars(figures: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in figures.items() if not isinstance(v, list)}


def _text(value: float | None, how: Callable[[float], str]) -> str:
    return ABSENT if value is None else how(value)
