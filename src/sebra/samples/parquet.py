"""Parquet files, whoever wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sebra.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd


def read_parquet(path: Path, what: str = "a readable table") -> pd.DataFrame:
    """The table of a file, its texts decoded; a damaged one is refused as not being `what`."""
    import pandas as pd

    try:
        table = pd.read_parquet(path)
        # Texts are checked only when they become Python's, which would be somewhere else.
        table.select_dtypes(exclude="number").astype(object)
        table.index.astype(object)
    except Exception as error:  # pyarrow and pandas raise many kinds for a damaged file
        if isinstance(error, OSError) and error.strerror:
            raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if isinstance(error, UnicodeDecodeError) or reason.startswith("Unknown error: Wrapping"):
            reason = "holds text that is not UTF-8"
        raise UsageError(f"{path}: not {what} ({reason})") from error
    return table
