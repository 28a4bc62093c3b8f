"""`sebra bench` and its subcommands `study`, `speed`, `results`, `plant` and `carryover`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from sebra.cli import options as o
from sebra.cli.output import Bars, emit, line, table
from sebra.errors import UsageError
from sebra.processes import require_one
from sebra_bench.cli import believed, carryover
from sebra_bench.studies import STUDIES

if TYPE_CHECKING:
    from sebra_bench.bench import BenchRun

RUN = "run"
STUDY_NAMES = ", ".join(sorted(STUDIES))
EXAMPLE = "Example: sebra bench demo --seeds 4; studies: sebra bench study NAME DATA"


class _Group(TyperGroup):
    """`sebra bench DATA` is `sebra bench run DATA`: the word may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [RUN, *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


class _Run(TyperCommand):
    """Shows the usage without the word that may be left out."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        formatter.write_usage(ctx.parent.command_path, " ".join(self.collect_usage_pieces(ctx)))


bench_app = typer.Typer(
    cls=_Group,
    rich_markup_mode=None,
    help="Methods x seeds as the paper's table, beside the paper's figures; and studies.",
)


def register(app: typer.Typer) -> None:
    app.add_typer(bench_app, name="bench")
    carryover.register(bench_app)
    believed.register(bench_app)


Methods = Annotated[
    str,
    typer.Option(
        "--methods", metavar="A,B", help="Methods, with settings in brackets: dfr[on=ranking]."
    ),
]
RankMethods = Annotated[
    str | None,
    typer.Option(
        "--rank-methods",
        metavar="A,B",
        help="Rankers; a method that needs a ranking runs once on each [default: its own].",
    ),
]
RankWeights = Annotated[
    str | None,
    typer.Option(
        "--rank-weights",
        metavar="FILE",
        help="Weights of the network that ranks, if it is another: a file, hub or none.",
    ),
]
RankMode = Annotated[
    str | None,
    typer.Option(
        "--rank-mode",
        metavar="MODE",
        help="features: rank over the frozen backbone, even where the model fine-tunes it; "
        "finetune: train the whole network to rank.",
    ),
]
Seeds = Annotated[int, typer.Option("--seeds", help="How many seeds, from 0 on.")]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Settings by name, or none [default: paper/<layout> where there is one].",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting of all methods that have it (rank.KEY: of all rankers); may be "
        "repeated.",
    ),
]
MinGroup = Annotated[
    int, typer.Option("--min-group", help="Smaller test groups are never the worst group.")
]
Jobs = Annotated[int, typer.Option("--jobs", help="Runs at a time, as far as memory allows.")]
ProtocolKind = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="NAME",
        help="Compare on equal terms, label-free, by groups or both: settings are declared in "
        "advance and chosen on validation samples, and the test split is looked at "
        "once.",
    ),
]
Deadline = Annotated[
    float | None,
    typer.Option(
        "--deadline",
        metavar="SECONDS",
        help="Stop after so long; finished runs stay, and the same command does the others.",
    ),
]
Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="RUN",
        help="Run folder [default: runs/bench-<time>]; rows that are in it are not run again.",
    ),
]


@bench_app.command(RUN, cls=_Run, epilog=EXAMPLE)
def bench(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA",
            help="One or several data sets, in any form of DATA.",
            show_default=False,
        ),
    ],
    methods: Methods = "erm,sebra",
    seeds: Seeds = 4,
    rank_methods: RankMethods = None,
    rank_weights: RankWeights = None,
    rank_mode: RankMode = None,
    min_group: MinGroup = 20,
    jobs: Jobs = 1,
    protocol: ProtocolKind = None,
    deadline: Deadline = None,
    out: Out = None,
    device: o.Device = "auto",
    mode: o.Mode = "auto",
    backbone: o.Backbone = None,
    weights: o.Weights = None,
    image_size: o.ImageSize = None,
    preset: Preset = None,
    set_: Set = None,
    attributes: o.Attributes = None,
    track: o.Track = None,
    resume: o.Resume = False,
    as_json: o.Json = False,
) -> None:
    """Run methods x seeds on DATA and print the paper's table beside the paper's figures.

    Every finished run is a row on disk: started again with the same --out, nothing is repeated.
    """
    from sebra_bench.bench import bench as run_bench
    from sebra_bench.bench import check_settings
    from sebra_bench.plan import BenchOptions, parse_specs
    from sebra_bench.rows import results_folder

    options = BenchOptions(
        methods=parse_specs(methods),
        seeds=seeds,
        preset=preset,
        overrides=tuple(set_ or ()),
        rankers=() if rank_methods is None else parse_specs(rank_methods, "--rank-methods"),
        min_group=min_group,
        rank_weights=rank_weights,
        rank_mode=rank_mode,
        jobs=jobs,
        protocol=protocol,
        deadline=deadline,
    )
    check_settings(options)
    sources = [
        o.make_source(d, 0, device, mode, backbone, weights, image_size, attributes, None)
        for d in data
    ]
    require_one("sebra bench")
    o.check_track(track)
    folder = results_folder(out, "bench", resume)
    run = run_bench(sources, options, folder, Bars())
    o.send_track(track, folder)
    _show(run, str(folder.path), as_json)


@bench_app.command("study", epilog="Example: sebra bench study ablation demo --seeds 2")
def study(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help=f"One of {STUDY_NAMES}.", show_default=False),
    ],
    data: o.Data,
    seeds: Seeds = 4,
    rank_weights: RankWeights = None,
    out: Out = None,
    device: o.Device = "auto",
    mode: o.Mode = "auto",
    backbone: o.Backbone = None,
    weights: o.Weights = None,
    image_size: o.ImageSize = None,
    preset: Preset = None,
    set_: Set = None,
    attributes: o.Attributes = None,
    track: o.Track = None,
    resume: o.Resume = False,
    as_json: o.Json = False,
) -> None:
    """Run one study on DATA: a table, and the figure drawn from it."""
    from sebra_bench.bench import study as run_study
    from sebra_bench.plan import BenchOptions
    from sebra_bench.rows import results_folder
    from sebra_bench.studies import study_function

    study_function(name)
    options = BenchOptions((), seeds, preset, tuple(set_ or ()), rank_weights=rank_weights)
    source = o.make_source(data, 0, device, mode, backbone, weights, image_size, attributes, None)
    require_one("sebra bench study")
    o.check_track(track)
    folder = results_folder(out, f"study-{name}", resume)
    run = run_study(name, source, options, folder, Bars())
    o.send_track(track, folder)
    _show(run, str(folder.path), as_json)


@bench_app.command("speed", epilog="Example: sebra bench speed --backbone resnet18 --json")
def speed(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]",
            help="Images in any form of DATA [default: UrbanCars in $SEBRA_DATA, else demo].",
            show_default=False,
        ),
    ] = None,
    sections: Annotated[
        str | None,
        typer.Option(
            "--sections",
            metavar="A,B",
            help="Some of engines, train, select, ranking, debias, stream, growth, commands, large "
            "[default: all but the last two].",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="Rankings per side, from seed 0 on.")] = 1,
    batch: Annotated[int, typer.Option("--batch", help="Images per step.")] = 128,
    sizes: Annotated[
        str, typer.Option("--sizes", metavar="N,M", help="Numbers of samples for growth.")
    ] = "1000,10000,100000,1000000",
    large: Annotated[
        str, typer.Option("--large", metavar="N,D,C", help="Samples, width, classes for large.")
    ] = "1300000,2048,1000",
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference", metavar="FILE", help="A file with the reference loops to compare with."
        ),
    ] = None,
    out: Out = None,
    device: o.Device = "auto",
    backbone: o.Backbone = None,
    weights: o.Weights = None,
    image_size: o.ImageSize = None,
    preset: Preset = None,
    settings: o.Set = None,
    as_json: o.Json = False,
) -> None:
    """Measure speed beside an eager bf16 loop and the plain reference loop, in one run."""
    from sebra.runs.folder import RunFolder
    from sebra_bench.speed.run import USUAL, SpeedOptions, default_data
    from sebra_bench.speed.run import speed as run_speed

    options = SpeedOptions(
        sections=o.split_names(sections) or USUAL,
        seeds=seeds,
        preset=preset,
        overrides=tuple(settings or ()),
        batch=batch,
        sizes=_numbers("--sizes", sizes),
        large=_triple(large),
        reference=reference,
    )
    source = o.make_source(
        data or default_data(), 0, device, "auto", backbone, weights, image_size, None, None
    )
    require_one("sebra bench speed")
    folder = RunFolder.create(out, "speed")
    _show(run_speed(source, options, folder, Bars()), str(folder.path), as_json)


@bench_app.command(
    "results",
    epilog="Example: sebra bench results benchmarks/results --page docs/results.md",
)
def results(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER",
            help="A folder with rows of earlier benchmarks (.jsonl), at any depth.",
            show_default=False,
        ),
    ],
    page: Annotated[
        str, typer.Option("--page", metavar="FILE", help="The page to write.")
    ] = "results.md",
    everything: Annotated[
        bool, typer.Option("--all", help="Add the tables of every experiment.")
    ] = False,
    front: Annotated[
        str | None,
        typer.Option(
            "--front", metavar="FILE", help="Put the short table between the marks of this page."
        ),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Write one page of all rows under FOLDER: an overview, then the paper's Tables 1 to 6."""
    from pathlib import Path

    from sebra.runs.folder import RunFolder
    from sebra_bench.page import results_page

    command = f"sebra bench results {folder} --page {page}{' --all' if everything else ''}"
    text, rows = results_page(Path(folder), command, everything)
    target = Path(page)
    if target.is_dir():
        raise UsageError(f"--page: {page} is a folder; name a file")
    RunFolder(target.parent).write_text(target.name, text)
    if front is not None:
        from sebra_bench.front import with_table
        from sebra_bench.protocol_tables import protocol_rows

        known = Path(front).read_text(encoding="utf-8") if Path(front).is_file() else ""
        made = with_table(known, protocol_rows(Path(folder)))
        RunFolder(Path(front).parent).write_text(Path(front).name, made)
    emit({"rows": rows, "page": page}, as_json)
    if not as_json:
        line(f"{rows} rows: {page}")


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{option}: {text!r} is not a list of numbers like 1000,10000") from None


def _triple(text: str) -> tuple[int, int, int]:
    found = _numbers("--large", text)
    if len(found) != 3 or min(found) < 2:
        raise UsageError(f"--large: {text!r} is not samples,width,classes like 1300000,2048,1000")
    return found[0], found[1], found[2]


def _show(run: BenchRun, where: str, as_json: bool) -> None:
    emit(run.metrics, as_json)
    if as_json:
        return
    for found in run.tables:
        columns = list(found.shown[0])
        # The paper's figures go under ours: a cell in one line would be too wide for a terminal.
        rows = [[row.get(c, "").replace(" (", "\n(", 1) for c in columns] for row in found.shown]
        table(found.title, columns, rows)
        for remark in found.remarks:
            line(f"  {remark}")
    for figure in run.figures:
        line(f"figure: {figure}")
    line(f"run: {where}")
