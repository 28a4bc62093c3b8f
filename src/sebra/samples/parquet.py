"""Parquet files, whoever wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sebra.checksums import of_table
from sebra.errors import UsageError
from sebra.whole import written

if TYPE_CHECKING:
    import pandas as pd


_CHECKSUM = b"sebra checksum"


def write_parquet(path: Path, table: pd.DataFrame) -> None:
    """Writes a table whole or not at all, with a checksum of its content."""
    import pyarrow as pa
    from pyarrow import parquet

    found = pa.Table.from_pandas(table, preserve_index=False)
    facts = {**(found.schema.metadata or {}), _CHECKSUM: of_table(table).encode()}
    # By a handle, here and below: pyarrow takes no name that is not UTF-8.
    with written(path) as (temporary,), temporary.open("wb") as file:
        parquet.write_table(found.replace_schema_metadata(facts), file)


def read_parquet(path: Path, what: str = "a readable table") -> pd.DataFrame:
    """The table of a file, its texts decoded; a damaged one is refused as not being `what`."""
    import pandas as pd
    from pyarrow import parquet

    try:
        with path.open("rb") as file:
            table = pd.read_parquet(file)
            wanted = (parquet.read_schema(file).metadata or {}).get(_CHECKSUM)
        # Texts are checked only when they become Python's, which would be somewhere else.
        table.select_dtypes(exclude="number").astype(object)
        table.index.astype(object)
        if wanted is not None and wanted != of_table(table).encode():
            raise ValueError("damaged: its content is not what was written; make it again")
    except Exception as error:  # pyarrow and pandas raise many kinds for a damaged file
        if isinstance(error, OSError) and error.strerror:
            raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if isinstance(error, UnicodeDecodeError) or reason.startswith("Unknown error: Wrapping"):
            reason = "holds text that is not UTF-8"
        raise UsageError(f"{path}: not {what} ({reason})") from error
    return table
