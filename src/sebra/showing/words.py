"""Text for people: numbers, names that may hold anything, JSON inside a page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from markupsafe import Markup

SHOWN = 90  # characters of a name; the rest is in its tooltip
TOOLTIP = 1000


def name(text: object, shown: int = SHOWN) -> Markup:
    """A name from the data as isolated text: its direction and markup cannot leak into the page."""
    full = visible(str(text))
    if len(full) <= shown:
        return Markup('<bdi class="name">{}</bdi>').format(full)
    return Markup('<bdi class="name" title="{}">{}</bdi>').format(
        shortened(full, TOOLTIP), shortened(full, shown)
    )


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a long text: the end of a path says what it is."""
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - tail - 1]}…{text[-tail:]}"


def visible(text: str) -> str:
    """Control characters and lone surrogates replaced, so that XML and UTF-8 can hold the text."""
    if text.isprintable():
        return text
    return "".join(
        "�" if (ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000) else c
        for c in text
    )


def figure(value: Any, digits: int = 1) -> str:
    """A number, or `{mean, std, n}` over seeds; "–" where it is not known."""
    if isinstance(value, Mapping) and "mean" in value:
        mean = figure(value["mean"], digits)
        return f"{mean} ± {figure(value.get('std', 0), digits)}" if value.get("n", 2) > 1 else mean
    if value is None or (isinstance(value, Real) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return count(int(value))
    if isinstance(value, Real):
        rounded = round(float(value), digits) + 0.0
        return f"{rounded:.{digits}f}".replace("-", "−")
    return shortened(visible(str(value)), 300)


def mean(value: Any) -> float | None:
    """The number itself, of `{mean, std, n}` the mean; None where there is none."""
    if isinstance(value, Mapping):
        value = value.get("mean")
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
        return None
    return float(value)


def count(n: int) -> str:
    return f"{n:,}".replace(",", " ")  # a thin, unbreakable space


def percent(share: float) -> str:
    """A share of 0 to 1; never rounded to all or nothing when it is not."""
    value = round(100 * share)
    if value == 0 and share > 0:
        return "under 1 %"
    if value == 100 and share < 1:
        return "over 99 %"
    return f"{value} %"


def listed(parts: list[Markup], most: int = 4) -> Markup:
    """ "a, b and c"; of many the first ones and how many more there are."""
    if len(parts) > most:
        return Markup("{} and {} more").format(Markup(", ").join(parts[:most]), len(parts) - most)
    if len(parts) < 2:
        return Markup("").join(parts)
    return Markup("{} and {}").format(Markup(", ").join(parts[:-1]), parts[-1])


def page_json(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # escaped just above
