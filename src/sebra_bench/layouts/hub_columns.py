"""Which columns of a hub data set hold the content, the label and the attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sebra.errors import UsageError

LABELS = ("label", "labels", "target", "class", "fine_label")
PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("sentence_A", "sentence_B"),
    ("question1", "question2"),
    ("text_a", "text_b"),
    ("text", "text_b"),
)
TEXTS = ("text", "sentence", "content", "review", "document")
_PLAIN = (str, int, float, bool)
_NUMBERS = ("int", "uint", "float")
_SUFFIXES = {b"\xff\xd8": ".jpg", b"\x89P": ".png", b"GI": ".gif", b"RI": ".webp", b"BM": ".bmp"}


@dataclass(frozen=True)
class Columns:
    """The columns in use; `names` gives the class names behind a column of numbers."""

    label: str
    image: str | None = None
    text: str | None = None
    text_b: str | None = None
    attributes: tuple[str, ...] = ()
    names: Mapping[str, tuple[str, ...]] | None = None

    def undecoded(self, stream: Any) -> Iterable[Mapping[str, Any]]:
        """The stream with images left as encoded bytes."""
        if self.image is None:
            rows: Iterable[Mapping[str, Any]] = stream
            return rows
        from datasets import Image

        decoded: Iterable[Mapping[str, Any]] = stream.cast_column(self.image, Image(decode=False))
        return decoded


def choose_columns(
    features: Mapping[str, Any] | None, options: Mapping[str, Any], where: str
) -> Columns:
    """The columns that the options name, else those whose type or usual name says it."""
    if not features:
        raise UsageError(f"{where}: does not say which columns it has")
    for option in ("image", "text", "text_b", "label"):
        if options[option] and options[option] not in features:
            raise UsageError(f"{where}: no column {options[option]!r} ({_listed(features)})")
    kinds = {name: type(feature).__name__ for name, feature in features.items()}
    image = options["image"] or next((n for n, k in kinds.items() if k == "Image"), None)
    text, text_b = options["text"] or None, options["text_b"] or None
    if text is not None:
        image = None
    elif image is None:
        text, text_b = _texts(features, text_b)
    if image is None and text is None and not _has_numbers(features, options["label"]):
        raise UsageError(
            f"{where}: no image or text column found, and none of numbers; name one with ?image=… "
            f"or ?text=… ({_listed(features)})"
        )
    label = options["label"] or _label(features, kinds, where)
    used = {image, text, text_b, label}
    return Columns(
        label,
        image,
        text,
        text_b,
        tuple(n for n, k in kinds.items() if n not in used and k in ("Value", "ClassLabel")),
        {n: tuple(features[n].names) for n, k in kinds.items() if k == "ClassLabel"},
    )


def parse_row(row: Mapping[str, Any], columns: Columns) -> dict[str, Any] | None:
    """A row as the manifest has it; None where it has no label (hidden test labels are -1)."""
    label = _named(row, columns.label, columns)
    if label is None or label == "":
        return None
    out: dict[str, Any] = {"label": str(label)}
    if columns.image is not None:
        data = (row[columns.image] or {}).get("bytes")
        if data is None:
            data = _read(row[columns.image])
        out["image"] = (data, _SUFFIXES.get(data[:2], ".image"))
    elif columns.text is not None:
        out["text"] = _text(row[columns.text])
        if columns.text_b is not None:
            out["text_b"] = _text(row[columns.text_b])
    for name in columns.attributes:
        value = _named(row, name, columns)
        key = name if name not in _RESERVED else f"{name}_column"
        out[key] = value if isinstance(value, _PLAIN) else None
    return out


_RESERVED = frozenset({"path", "text", "text_b", "label", "id", "split", "image"})


def _named(row: Mapping[str, Any], column: str, columns: Columns) -> Any:
    value = row[column]
    names = (columns.names or {}).get(column)
    if names is None or value is None:
        return value
    return names[value] if 0 <= int(value) < len(names) else None


def _read(image: Mapping[str, Any] | None) -> bytes:
    """The bytes of an image that is given by where it is only; none where there is no image."""
    path = (image or {}).get("path")
    if path is None:
        return b""
    import fsspec

    with fsspec.open(path, "rb") as file:
        data: bytes = file.read()
    return data


def _text(value: Any) -> str:
    """An empty cell would read as a missing one."""
    return str(value) if value not in (None, "") else " "


def _has_numbers(features: Mapping[str, Any], label: str) -> bool:
    """Whether there are columns of numbers: the features of a table."""
    others = [f for n, f in features.items() if n != label and n not in LABELS]
    values = [f for f in others if type(f).__name__ == "Value"]
    return any(str(f.dtype).startswith(_NUMBERS) for f in values)


def _texts(features: Mapping[str, Any], text_b: str | None) -> tuple[str | None, str | None]:
    for first, second in PAIRS:
        if first in features and second in features:
            return first, second
    return next((name for name in TEXTS if name in features), None), text_b


def _label(features: Mapping[str, Any], kinds: Mapping[str, str], where: str) -> str:
    for name in LABELS:
        if name in features:
            return name
    only = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    if len(only) != 1:
        raise UsageError(
            f"{where}: no label column found; name one with ?label=… ({_listed(features)})"
        )
    return only[0]


def _listed(features: Mapping[str, Any]) -> str:
    return f"columns: {', '.join(features)}"
