"""The samples that are in the page: their pictures, figures and the search index."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sebra.samples.table import FeatureArray, Texts
from sebra.showing.findings import column_name, telling_columns
from sebra.showing.ranked import Ranked
from sebra.showing.thumbnails import Thumbnail, addresses, pictures_of, side_for
from sebra.showing.words import shortened, visible

PAGE_BYTES = 12_500_000  # for samples; tables, charts and scripts take the rest of 15 MB
INDEX_BYTES = 2_500_000  # for the ids of samples that are not shown
CARD_BYTES = 700  # of markup around a sample in a gallery
LARGE_SIDE = 400  # of the pictures that a click shows
LARGE_BYTES = 5_000_000  # for them together, as far as the page's budget has room
EXCERPT = 600
COLUMNS = 6  # of a table of numbers that a sample is shown by


@dataclass(frozen=True)
class Entry:
    """One sample of the page. `number` is its place in the page's data."""

    number: int
    row: int
    alt: str
    picture: str | None
    text: str
    rank: int
    label: str


@dataclass(frozen=True)
class Album:
    """Every sample in the page, found by its row in the table."""

    entries: dict[int, Entry]
    side: int

    def take(self, rows: Sequence[int]) -> list[Entry]:
        return [self.entries[row] for row in rows if row in self.entries]


def album_of(ranked: Ranked, rows: Sequence[int], thumbnail: Thumbnail | None) -> Album:
    """Takes rows in the order given until the page's budget of bytes is spent."""
    side = side_for(len(rows))
    read = thumbnail or pictures_of(ranked.samples, ranked.rows, side)
    columns = telling_columns(ranked, COLUMNS)
    entries: dict[int, Entry] = {}
    spent = 0
    for row, picture in zip(rows, addresses(read, rows, side), strict=True):
        label = ranked.classes[ranked.labels[row]]
        text = "" if picture else _text(ranked, row, columns)
        alt = (
            f"{shortened(visible(label), 60)}, rank {ranked.rank[row]}: "
            f"{shortened(visible(ranked.ids[row]), 120)}"
        )
        cost = CARD_BYTES + len(picture or "") + 2 * len(text) + 2 * _bytes(ranked.ids[row])
        if spent + cost > PAGE_BYTES:
            break
        spent += cost
        number = len(entries)
        entries[row] = Entry(number, row, alt, picture, text, int(ranked.rank[row]), label)
    return Album(entries, side)


def large_pictures(
    ranked: Ranked, album: Album, rows: Sequence[int], thumbnail: Thumbnail | None
) -> dict[int, str]:
    """Pictures larger than in the galleries, by number; rows: whose, the most telling first."""
    read = thumbnail or pictures_of(ranked.samples, ranked.rows, LARGE_SIDE)
    left = min(LARGE_BYTES, PAGE_BYTES - sum(len(e.picture or "") for e in album.entries.values()))
    entries = album.take(list(dict.fromkeys(rows)))[: left // (LARGE_SIDE**2 // 4)]
    found = addresses(read, [entry.row for entry in entries], LARGE_SIDE)
    out: dict[int, str] = {}
    for entry, picture in zip(entries, found, strict=True):
        if picture is not None and picture != entry.picture and len(picture) <= left:
            left -= len(picture)
            out[entry.number] = picture
    return out


def page_data(ranked: Ranked, album: Album) -> dict[str, Any]:
    """What the scripts know of each sample, column by column."""
    rows = [entry.row for entry in album.entries.values()]
    attributes = ranked.attributes
    return {
        "classes": list(ranked.classes),
        "sizes": [len(order) for order in ranked.orders],
        "stages": list(ranked.stages),
        "attributes": list(attributes),
        "columns": {
            "id": [ranked.ids[i] for i in rows],
            "label": [int(ranked.labels[i]) for i in rows],
            "rank": [int(ranked.rank[i]) for i in rows],
            "bucket": [int(ranked.bucket[i]) for i in rows],
            "spuriosity": [round(float(ranked.spuriosity[i]), 4) for i in rows],
            "stages": [[_rounded(c[i]) for i in rows] for c in ranked.stages.values()],
            "noise": None if ranked.noise is None else [_rounded(ranked.noise[i]) for i in rows],
            "suggested": _some(ranked.suggested, rows),
            "why": _some(ranked.why, rows),
            "attributes": [[values[i] for i in rows] for values in attributes.values()],
            "text": [entry.text for entry in album.entries.values()],
        },
    }


def search_index(ranked: Ranked) -> list[dict[str, Any]] | None:
    """Every id by class in the order of rank, for the search; None where they are too many."""
    out = []
    for order in ranked.orders:
        ids = [ranked.ids[i] for i in order.tolist()]
        prefix = _common_start(min(ids, default=""), max(ids, default=""))
        out.append({"prefix": prefix, "ids": [i[len(prefix) :] for i in ids]})
    size = sum(_bytes(i) + 3 for part in out for i in part["ids"])
    return out if size <= INDEX_BYTES else None


def _text(ranked: Ranked, row: int, columns: Sequence[int]) -> str:
    content, place = ranked.samples.content, int(ranked.rows[row])
    if place >= 0 and isinstance(content, FeatureArray):
        values = content.values[content.rows[place]]
        return ", ".join(f"{column_name(content, k)} {float(values[k]):.4g}" for k in columns)
    if not isinstance(content, Texts) or place < 0:
        return ""
    parts = [content.first[place], content.second[place] if content.second else ""]
    return shortened(visible(" — ".join(p for p in parts if p)), EXCERPT)


def _bytes(text: str) -> int:
    """The bytes of a text in the page's JSON, at most."""
    special = sum(text.count(c) for c in "<>&")
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) + 5 * special


def _common_start(first: str, last: str) -> str:
    """What all texts between these two, in sorted order, begin with."""
    same = 0
    for a, b in zip(first, last, strict=False):
        if a != b:
            break
        same += 1
    return first[:same]


def _rounded(value: Any) -> float | None:
    number = float(value)
    return round(number, 4) if math.isfinite(number) else None  # JSON has no NaN


def _some(texts: list[str] | None, rows: Sequence[int]) -> list[str] | None:
    return None if texts is None else [shortened(visible(texts[i]), 300) for i in rows]
