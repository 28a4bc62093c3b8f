"""`sebra predict`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sebra.cli import options as o
from sebra.cli.output import Bars, emit, line

if TYPE_CHECKING:
    from sebra_tools.predict import Predictions

_SHOWN_FAULTS = 10


def register(app: typer.Typer) -> None:
    app.command("predict", epilog="Example: sebra predict runs/photos new/ --out answers.csv")(
        predict
    )


def predict(
    run: o.Run,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Any form of DATA, a folder of images without classes, or one image file.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the CSV here, not to stdout.")
    ] = None,
    device: o.Device = "auto",
    as_json: o.Json = False,
) -> None:
    """Predict with a trained model: CSV with id, predicted, probability and one p_ per class."""
    from pathlib import Path

    from sebra.debiasing.model import Model
    from sebra.runs.meter import Meter
    from sebra_tools.predict import predict as run_predict

    bars, meter = Bars(), Meter()
    file = None if out is None else o.writable_file(out)
    with meter.phase("open"):
        model = Model.load(run, device)
    with meter.phase("predict"):
        found = run_predict(model, data, bars)
    _report_faults(found, bars)
    with meter.phase("write"):
        if file is not None:
            _write(file, found.csv())
    figures = {
        "run": run,
        "data": data,
        "samples": len(found.ids),
        "predicted": found.counts(),
        "unreadable": [{"id": f.id, "reason": f.reason} for f in found.faults],
    }
    figures |= {"predictions": found.rows()} if file is None else {"file": str(file)}
    emit(figures | meter.result(), as_json)
    if as_json:
        return
    if file is None:
        typer.echo(found.csv(), nl=False)
    else:
        line(f"{len(found.ids)} predictions: {Path(file)}")


def _report_faults(found: Predictions, bars: Bars) -> None:
    for fault in found.faults[:_SHOWN_FAULTS]:
        bars.message(f"unreadable: {fault.id} ({fault.reason})")
    rest = len(found.faults) - _SHOWN_FAULTS
    if rest > 0:
        bars.message(f"unreadable: {rest} more; they have an empty prediction")


def _write(file: str, text: str) -> None:
    from pathlib import Path

    from sebra.runs.folder import RunFolder

    path = Path(file)
    RunFolder(path.parent).write_text(path.name, text)
