"""The checksums of a run's files, kept beside them: by these a run is verified later."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from sebra.checksums import of_file, of_json
from sebra.errors import UsageError, reason
from sebra.whole import json_of, write_text

CHECKSUMS = "checksums.json"
_NOT_THE_RUNS = (CHECKSUMS, "verdicts.json")  # what a person says of a run changes later
log = logging.getLogger(__name__)


def seal(folder: Path, config: Any) -> None:
    """Keeps the checksums of all files in the folder, and the id that the configuration gives."""
    sums = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") or part == "checkpoint" for part in name.parts)
        if path.is_file() and not hidden and name.name not in _NOT_THE_RUNS:
            sums[name.as_posix()] = of_file(path)
    write_text(folder / CHECKSUMS, json.dumps({"id": of_json(config), "files": sums}, indent=1))


def seal_again(folder: Path, name: str) -> None:
    """Keeps the checksum of a file that was written again; nothing where the run has none."""
    if (folder / CHECKSUMS).is_file():
        kept = read_checksums(folder)
        kept["files"][name] = of_file(folder / name)
        write_text(folder / CHECKSUMS, json.dumps(kept, indent=1))


def read_checksums(folder: Path) -> dict[str, Any]:
    """`files`: the checksum of each; `id`: that of the run."""
    path = folder / CHECKSUMS
    try:
        kept = json_of(path.read_text(encoding="utf-8"))
        sums = {str(name): str(value) for name, value in kept["files"].items()}
        return {"id": str(kept["id"]), "files": sums}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path}: unreadable ({reason(error)}), so nothing can be verified"
        ) from None


def read_sealed(folder: Path, name: str) -> str:
    """The text of a file; one that was changed since the run wrote it is told of."""
    path = folder / name
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not a text ({reason(error)})") from None
    if (folder / CHECKSUMS).is_file():
        wanted = read_checksums(folder)["files"].get(name)
        if wanted not in (None, of_file(path)):
            log.warning("%s was changed since the run wrote it", path)
    return text
