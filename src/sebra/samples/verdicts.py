"""What a person said of patterns and samples: `verdicts.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sebra.errors import UsageError, reason
from sebra.whole import json_of, regular, write_text

VERDICTS = "verdicts.json"
FORMAT = 1
SHORTCUT, MEANT, UNSURE = "shortcut", "meant", "unsure"
MARKS = ("keep", "relabel", "drop", "spurious")
# What may be said of a pattern, of a suspect and of any sample, and the text that may go with it.
SAID = {
    "patterns": ((SHORTCUT, MEANT, UNSURE), "note"),
    "suspects": (("wrong", "right"), "note"),
    "marks": (MARKS, "label"),
}
_LONGEST = 2000  # characters of a note or a label
_OF = ("run", "data", "ranking")

Entry = dict[str, str]  # `verdict`, and a `note` or a `label`


@dataclass
class Verdicts:
    """Verdicts by pattern (its stage) and by sample (its id).

    of: the `run`, its `data` and the checksum of the `ranking` that they are about.
    """

    of: dict[str, str]
    patterns: dict[str, Entry] = field(default_factory=dict)
    suspects: dict[str, Entry] = field(default_factory=dict)
    marks: dict[str, Entry] = field(default_factory=dict)

    def called(self, verdict: str) -> list[str]:
        """The patterns that were called so."""
        return [name for name, entry in self.patterns.items() if entry["verdict"] == verdict]

    def say(self, change: Any) -> None:
        """Takes in one verdict: `kind`, `key` and `entry`, None to take it back."""
        if not isinstance(change, Mapping) or set(change) != {"kind", "key", "entry"}:
            raise UsageError("a verdict is an object of kind, key and entry")
        kind, key, entry = change["kind"], change["key"], change["entry"]
        if not isinstance(kind, str) or kind not in SAID or not isinstance(key, str):
            raise UsageError(f"kind: expected one of {', '.join(SAID)}, and a key")
        entries: dict[str, Entry] = getattr(self, kind)
        if entry is None:
            entries.pop(key, None)
        else:
            entries[key] = _entry(kind, entry)

    def to_dict(self) -> dict[str, Any]:
        said = {kind: getattr(self, kind) for kind in SAID}
        return {"format": FORMAT, **self.of, **said}

    def save(self, path: Path) -> None:
        """Whole or not at all."""
        write_text(path, json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Verdicts:
        """Reads a file that `sebra review` or a report wrote."""
        try:
            found = json_of(regular(path).read_text(encoding="utf-8"))
            if not isinstance(found, dict) or found.get("format") != FORMAT:
                raise UsageError("not a file of verdicts")
            verdicts = cls({k: str(found[k]) for k in _OF})
            for kind in SAID:
                for key, entry in dict(found.get(kind, {})).items():
                    verdicts.say({"kind": kind, "key": key, "entry": entry})
        except (OSError, ValueError, LookupError, TypeError, UsageError) as error:
            raise UsageError(f"{path}: cannot be read as verdicts ({reason(error)})") from None
        return verdicts


def _entry(kind: str, entry: Any) -> Entry:
    verdicts, text = SAID[kind]
    if not isinstance(entry, Mapping) or entry.get("verdict") not in verdicts:
        raise UsageError(f"{kind}: the verdict must be one of {', '.join(verdicts)}")
    more = entry.get(text, "")
    if not isinstance(more, str) or len(more) > _LONGEST or set(entry) - {"verdict", text}:
        raise UsageError(f"{kind}: beside the verdict there may be a {text}, a short text")
    return {"verdict": str(entry["verdict"]), **({text: more} if more else {})}
