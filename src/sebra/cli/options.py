"""Options that several commands share, declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sebra.cli.output import begun
from sebra.debiasing.registry import METHODS
from sebra.errors import UsageError, reason
from sebra.plugins import TRACKERS, plugins
from sebra.ranking.registry import RANKERS

if TYPE_CHECKING:
    from sebra.runs.folder import RunFolder
    from sebra.workflows.prepared import Source
    from sebra.workflows.rank import RankOptions


def listed(names: Iterable[str]) -> str:
    """`a, b or c`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


_DATA = typer.Argument(
    metavar="DATA",
    help="A folder of class folders, a .csv/.parquet/.npz file, a folder with X.npy and y.npy, "
    "NAME:PATH of a known layout (see `sebra data`), hf:ORG/NAME of the hub, or `demo`.",
    show_default=False,
)
Data = Annotated[str, _DATA]
ResumedData = Annotated[str | None, _DATA]  # a run that is gone on with knows its own
Run = Annotated[
    str, typer.Argument(metavar="RUN", help="The folder of an earlier run.", show_default=False)
]
RankMethod = Annotated[str, typer.Option("--method", help=f"How to rank: {listed(RANKERS)}.")]
DebiasMethod = Annotated[str, typer.Option("--method", help=f"How to train: {listed(METHODS)}.")]
Out = Annotated[
    str | None,
    typer.Option("--out", metavar="RUN", help="Run folder [default: runs/<command>-<time>]."),
]
Seed = Annotated[
    int, typer.Option("--seed", help="The same seed on the same machine gives the same result.")
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Mode = Annotated[
    str,
    typer.Option(
        "--mode",
        help="features trains a head on what the frozen backbone sees, finetune the whole network; "
        "auto chooses.",
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        metavar="NAME",
        help="The network: a model of timm by name, small (a little one, trained from scratch), or "
        "random (fixed random features).",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="FILE",
        help="Weights of the backbone: a safetensors file, hub (download them) or none.",
    ),
]
ImageSize = Annotated[
    int | None,
    typer.Option("--image-size", help="Side of the pictures in pixels [default: from the files]."),
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset", metavar="NAME", help="Settings by name, e.g. paper/urbancars [default: none]."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change one setting of the method; may be repeated."
    ),
]
Attributes = Annotated[
    str | None,
    typer.Option(
        "--attributes", metavar="A,B", help="Attribute columns to evaluate with, strongest first."
    ),
]
Exclude = Annotated[
    str | None,
    typer.Option(
        "--exclude",
        metavar="FILE",
        help="Leave out and relabel samples as marked in a report: its CSV, or verdicts.json.",
    ),
]
EarlierVerdicts = Annotated[
    str | None,
    typer.Option(
        "--verdicts",
        metavar="FILE",
        help="Take over the verdicts that were given on an earlier ranking.",
    ),
]
Neurons = Annotated[
    str | None,
    typer.Option("--neurons", metavar="FILE|auto", help="Which neurons --method neurons goes by."),
]
Tune = Annotated[
    bool,
    typer.Option(
        "--tune", help="Try several settings first and keep the one with the highest trust."
    ),
]
TuneSeconds = Annotated[
    float, typer.Option("--tune-seconds", help="How long --tune may take.", min=1)
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an unfinished run.")]
Track = Annotated[
    str | None,
    typer.Option(
        "--track", metavar="NAME", help="Also send curves and figures to tensorboard or wandb."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def split_names(text: str | None) -> tuple[str, ...] | None:
    """`a,b` to a tuple of names."""
    if text is None:
        return None
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise UsageError("an empty list of names was given")
    return names


def writable_file(out: str) -> str:
    """Refuses a file that cannot be written before any work is done."""
    import os
    from pathlib import Path

    path = Path(out)
    if path.is_dir():
        raise UsageError(f"--out: {out} is a folder, give a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.access(path, os.F_OK)  # a `ValueError` for a name that nothing can have
    except (OSError, ValueError) as error:
        raise UsageError(f"--out: cannot write to {path.parent} ({reason(error)})") from None
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"--out: cannot write to {path.parent} (permission denied)")
    return out


def make_source(
    data: ResumedData = None,
    seed: Seed = 0,
    device: Device = "auto",
    mode: Mode = "auto",
    backbone: Backbone = None,
    weights: Weights = None,
    image_size: ImageSize = None,
    attributes: Attributes = None,
    exclude: Exclude = None,
) -> Source:
    """Which data, which network and which device."""
    from sebra.workflows.prepared import Source

    assert data is not None  # `takes` sees to it
    names = split_names(attributes)
    return Source(data, seed, device, mode, backbone, weights, image_size, names, exclude)


def make_rank_options(
    method: RankMethod = "sebra",
    neurons: Neurons = None,
    tune: Tune = False,
    tune_seconds: TuneSeconds = 120,
    verdicts: EarlierVerdicts = None,
    preset: Preset = None,
    set_: Set = None,
) -> RankOptions:
    """How to rank; wrong or contradictory options are refused before anything is read."""
    from sebra.workflows.rank import RankOptions, check_options

    seconds = tune_seconds if tune else None
    options = RankOptions(method, preset, tuple(set_ or ()), neurons, seconds, verdicts)
    check_options(options)
    return options


# A verdict needs patterns, so `audit` ranks by the method that names them.
make_audit_options = partial(make_rank_options, method="peel")


def takes(**groups: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options that a function takes, as one parameter: what it returns."""

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        named = inspect.signature(command).parameters
        made = {str(named[name].annotation): Any for name in groups}  # types not imported here

        def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
            return inspect.signature(function, locals=made, eval_str=True).parameters

        parameters: dict[str, inspect.Parameter] = {}
        for name, parameter in parameters_of(command).items():
            parameters |= parameters_of(groups[name]) if name in groups else {name: parameter}

        @wraps(command)
        def run(**given: Any) -> None:
            if given.get("data", "") is None:
                known = unfinished(command.__name__, given["out"], given["resume"])
                given |= {option: v for option, v in known.items() if option in given}
            begun("sebra: loading libraries")
            for name, make in groups.items():
                names = inspect.signature(make).parameters
                given[name] = make(**{option: given.pop(option) for option in names})
            command(**given)

        keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters.values()]
        run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in keywords}
        return run

    return wrap


def unfinished(command: str, out: str | None, resume: bool) -> dict[str, Any]:
    """DATA and the options of the run that `--resume` goes on with, where no DATA is given."""
    from pathlib import Path

    from sebra.engine.packing import load
    from sebra.engine.session import STATE
    from sebra.runs.folder import CHECKPOINT, latest

    if not resume:
        raise UsageError("Missing argument 'DATA'.")
    folder = Path(out) if out is not None else latest(command)
    state = None if folder is None else folder / CHECKPOINT / STATE
    if state is None or not state.is_file():
        raise UsageError(f"--resume: no unfinished run in {folder or 'runs'}; name DATA to start")
    found = load(state)[1]
    if found.get("command") != command:
        raise UsageError(f"--resume: {folder} holds an unfinished {found.get('command')}")
    given = {k: v for k, v in found.items() if k not in ("command", "version", "content")}
    if "overrides" in given:
        given["set_"] = given.pop("overrides")
    if "attributes" in given:
        given["attributes"] = ",".join(given["attributes"])
    return {**given, "tune": True} if "tune_seconds" in given else given


def check_track(name: str | None) -> None:
    """Refuses a tracker that is unknown or not installed before any work is done."""
    if name is not None:
        _tracker(name)


def send_track(name: str | None, folder: RunFolder) -> None:
    """Sends a finished run to a tracker and says where it lies."""
    if name is not None:
        typer.echo(f"sebra: tracked in {_tracker(name).send(folder)}", err=True)


def _tracker(name: str) -> Any:
    known = plugins(TRACKERS)
    if name not in known:
        raise UsageError(f"--track: {name!r} is not one of {', '.join(known)}")
    return known[name].load()(name)
