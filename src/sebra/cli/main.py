"""The command line: options in, text and exit status out."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperGroup

from sebra import __version__, errors
from sebra.cli import data, debias, rank, show
from sebra.cli.output import begun
from sebra.errors import Interrupted, SebraError, UsageError, of_memory, of_system, reason, stop
from sebra.plugins import COMMANDS, plugins
from sebra.processes import is_main
from sebra.runs.meter import Meter


class Whole(TyperGroup):
    """Lists every command with the whole first sentence of what it does."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, (c.help or "").partition("\n\n")[0]) for name, c in found if c is not None]
        with formatter.section("Commands"):
            formatter.write_dl([(name, " ".join(text.split())) for name, text in rows])


app = typer.Typer(
    name="sebra",
    cls=Whole,
    help="Rank training samples by how much they rely on shortcuts, see the shortcuts, "
    "and train a model that does not need them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Some releases of typer use the click package, others carry their own copy of it.
_WRONG_USAGE: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"sebra {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Shared by all commands."""


app.command("rank", epilog="Example: sebra rank photos/ --out runs/photos")(rank.rank)
app.command("debias", epilog="Example: sebra debias photos/ --ranking runs/photos")(debias.debias)
app.command("audit", epilog="Example: sebra audit photos/")(show.audit)
app.command("report", epilog="Example: sebra report runs/photos")(show.report)
app.add_typer(data.data_app, name="data")
for plugin in plugins(COMMANDS).values():
    plugin.load()(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and leaves with its status.

    0 done; 2 wrong usage or wrong data, one line on stderr; 1 anything else; 130 interrupted,
    143 terminated.
    """
    signal.signal(signal.SIGTERM, stop)
    if isinstance(sys.stdout, TextIOWrapper):  # a file's name may hold what UTF-8 cannot
        sys.stdout.reconfigure(errors="backslashreplace")
    Meter.whole_process = True
    status = run(list(sys.argv[1:] if arguments is None else arguments))
    signal.signal(signal.SIGTERM, lambda *_: None)  # done; leaving takes no longer than a kill
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """The same without leaving the process."""
    try:
        logging.basicConfig(format="sebra: %(message)s", level=logging.WARNING, stream=sys.stderr)
        command = typer.main.get_command(app)
        is_main()  # refuses an environment that is no launcher's before any work
        try:
            result = command.main(arguments, prog_name="sebra", standalone_mode=False)
        except Exception as error:  # a library may have been stopped and said something else
            raise (errors.interruption(error) or error) from error.__cause__
        return int(result) if isinstance(result, int) else 0
    except (SebraError, Interrupted) as error:
        return _say(str(error), error.exit_status)
    except _WRONG_USAGE as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.ctx.get_help(), err=True)
            return 2
        return _say(error.format_message(), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", 130)
    except BrokenPipeError:
        return 1
    except OSError as error:
        return _say(str(of_system(error)), of_system(error).exit_status)
    except (MemoryError, RuntimeError) as error:
        if not of_memory(error):
            raise
        return _say(f"not enough memory for this data with these options ({reason(error)})", 2)


def _say(text: str, status: int) -> int:
    one_line = " ".join(text.split())
    with contextlib.suppress(UsageError):  # an environment that is no launcher's
        if status == 2 and not is_main():
            return status  # the main process says the same
    begun()
    typer.echo(f"sebra: {one_line}", err=True)
    return status
