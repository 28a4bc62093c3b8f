"""`sebra bench speed`: how fast, beside the loops such code is usually written with."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sebra import __version__
from sebra.debiasing.contrastive import ContrastiveConfig
from sebra.engine.device import choose_device, setup
from sebra.engine.session import ProgressSink, Session
from sebra.errors import CollapsedError, UsageError
from sebra.ranking.sebra import SebraConfig
from sebra.runs.config import settle
from sebra.runs.folder import RunFolder
from sebra.runs.meter import Meter
from sebra.samples.table import ImageArray
from sebra.workflows.prepare import prepare
from sebra.workflows.prepared import Source
from sebra_bench.bench import BenchRun, write_tables
from sebra_bench.facts import facts
from sebra_bench.plan import preset_for
from sebra_bench.speed.ranking import Rankings, ranking_lines
from sebra_bench.speed.rates import (
    Bench,
    Line,
    debias_lines,
    select_lines,
    train_lines,
)
from sebra_bench.speed.scale import growth, large_line, stream_lines
from sebra_bench.speed.tools import (
    fitted_exponent,
    measured_peak,
    reference_module,
)
from sebra_bench.speed.whole import command_lines, engine_lines
from sebra_bench.tables import ABSENT, Table
from sebra_kernels import fusing

ON_IMAGES = ("engines", "train", "select", "ranking", "debias", "stream")
USUAL = (*ON_IMAGES, "growth")
SECTIONS = (*USUAL, "commands", "large")
_WORKERS = 8


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
    meter, session = Meter(), Session(progress=progress)
    folder.write_config(
        {"command": "bench speed", "version": __version__, **source.to_dict(), **_settings(options)}
    )
    found = Found()

    def record() -> BenchRun:
        """Writes what is measured so far: a run that is cut off has lost one section."""
        metrics: dict[str, Any] = {
            "version": __version__,
            **facts(device),
            "speed": {line.name: _figures(line) for line in found.lines},
            **found.extra,
            **meter.result(),
            "run": str(folder.path),
        }
        run = BenchRun(metrics, [_table(found, source, device)])
        write_tables(folder, run.tables)
        folder.write_metrics(metrics)
        return run

    work = _sections(source, options, session, meter, found, device)
    for name in (s for s in SECTIONS if s in options.sections):
        session.note(name)
        try:
            with meter.phase(name):
                work[name]()
        except CollapsedError as error:  # other sections do not need a ranking
            found.left_out[name] = str(error)
        record()
    return record()


@dataclass
class Found:
    """What is measured so far; `left_out`: sections that could not be, and why."""

    lines: list[Line] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def _settings(options: SpeedOptions) -> dict[str, Any]:
    found = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(options).items()}
    return {k: v for k, v in found.items() if v is not None}


def _sections(
    source: Source,
    options: SpeedOptions,
    session: Session,
    meter: Meter,
    found: Found,
    device: torch.device,
) -> dict[str, Callable[[], None]]:
    """What measures each section that was asked for, and adds it to what is found."""

    def grow() -> None:
        found.extra["growth"] = _growth(options, device)

    def large() -> None:
        found.lines.append(large_line(*options.large, device))

    def adding(measure: Callable[[], list[Line]]) -> Callable[[], None]:
        return lambda: found.lines.extend(measure())

    work: dict[str, Callable[[], None]] = {
        "growth": grow,
        "large": large,
        "commands": adding(lambda: command_lines(source)),
    }
    if any(s in ON_IMAGES for s in options.sections):
        on_images = _on_images(source, options, session, meter, found.extra)
        work |= {name: adding(measure) for name, measure in on_images.items()}
    return work


def _on_images(
    source: Source, options: SpeedOptions, session: Session, meter: Meter, extra: dict[str, Any]
) -> dict[str, Callable[[], list[Line]]]:
    reference = reference_module(options.reference)
    source = replace(source, mode="finetune")
    prepared = prepare(source, session, meter)
    samples, _ = prepared.split("train")
    if not isinstance(samples.content, ImageArray):
        raise UsageError(f"{source.data}: holds {samples.kind}; speed is measured on images")
    pixels = samples.content.pixels[samples.content.rows]
    preset = preset_for(source.data, options.preset)
    config: SebraConfig = settle(
        SebraConfig, "rank", "sebra", prepared.mode, preset, options.overrides
    ).config
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
    rankings = Rankings(options.seeds, preset, options.overrides, options.batch)
    contrastive: ContrastiveConfig = settle(
        ContrastiveConfig, "debias", "sebra", prepared.mode, preset
    ).config
    return {
        "engines": lambda: engine_lines(prepared),
        "train": lambda: train_lines(bench),
        "select": lambda: select_lines(bench),
        "ranking": lambda: ranking_lines(prepared, bench, config, rankings),
        "debias": lambda: debias_lines(bench, contrastive),
        "stream": lambda: stream_lines(bench),
    }


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


def _table(found: Found, source: Source, device: torch.device) -> Table:
    table = Table(f"speed on {device.type}: {source.backbone or 'default network'}, {source.data}")
    extra = found.extra
    for line in found.lines:
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
            table.remarks.append(_qualities(line))
        if "remark" in line.extra:
            table.remarks.append(f"{line.name}: {line.extra['remark']}")
    table.remarks += [f"{name} not measured: {why}" for name, why in found.left_out.items()]
    if device.type == "cuda":
        state = "in use" if fusing.available() else "not to be had here, torch's own are used"
        table.remarks.append(f"joint kernels of batch norm and ReLU: {state}")
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


def _qualities(line: Line) -> str:
    ours, theirs = line.extra["somers_d"], line.extra["reference_somers_d"]
    both = ["/".join("–" if d is None else f"{d:.3f}" for d in ds) for ds in (ours, theirs)]
    text = f"Somers' D by seed, {line.name}: Sebra {both[0]}, reference {both[1]}"
    if None in (*ours, *theirs):
        return text
    return f"{text}, on average {float(np.mean(ours) - np.mean(theirs)):+.3f}"


def _shown_seconds(value: float) -> str:
    return f"{value:.2f}"


def _shown_rate(value: float) -> str:
    return f"{value:,.0f}"


def _scalars(figures: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in figures.items() if not isinstance(v, list)}


def _text(value: float | None, how: Callable[[float], str]) -> str:
    return ABSENT if value is None else how(value)
