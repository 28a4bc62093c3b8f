"""Neurons to mark: a template for a person to fill in, and its way back into the ranker.

`neurons.json` holds, per class, the neurons with `"spurious": null` to be set to true or false;
`neurons.html` shows the samples that excite each of them most.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sebra.engine.session import Session
from sebra.errors import UsageError
from sebra.runs.folder import RunFolder
from sebra.samples.marks import GUARD, read_marks
from sebra.samples.table import Samples
from sebra.showing.thumbnails import addresses, pictures_of, side_for
from sebra.whole import json_of, regular

TEMPLATE, PAGE = "neurons.json", "neurons.html"
MOST_PICTURES = 2000


@dataclass(frozen=True)
class Marks:
    """What a person called spurious: neurons of classes (by number), or samples.

    importance: what the marked file said of (class, neuron), to notice another network.
    """

    source: str
    neurons: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    samples: tuple[int, ...] = ()
    importance: Mapping[tuple[int, int], float] = field(default_factory=dict)


@dataclass(frozen=True)
class Neuron:
    """A neuron that matters to a class; `examples` are the samples that excite it most."""

    neuron: int
    importance: float
    spurious: bool
    examples: tuple[int, ...]


def read_marked(file: str, train: Samples) -> Marks:
    """What `--neurons FILE` names: a filled-in template, or marks of samples from a report."""
    if Path(file).suffix.lower() == ".csv":
        return _from_samples(file, train)
    return read_neurons(file, train.classes)


def read_neurons(file: str, classes: tuple[str, ...]) -> Marks:
    """The neurons marked `"spurious": true` in a filled-in template."""
    loaded = _json(file)
    if not isinstance(loaded, Mapping):
        raise UsageError(f"--neurons: {file}: expected an object with a list for each class")
    number = {name: c for c, name in enumerate(classes)}
    neurons: dict[int, tuple[int, ...]] = {}
    importance: dict[tuple[int, int], float] = {}
    for name, entries in loaded.items():
        if name not in number:
            known = ", ".join(classes[:10])
            raise UsageError(f"--neurons: {file}: {name!r} is no class of the data (has: {known})")
        c = number[name]
        marked = [e for e in _entries(file, name, entries) if e["spurious"] is True]
        neurons[c] = tuple(dict.fromkeys(int(e["neuron"]) for e in marked))
        for entry in marked:
            if isinstance(entry.get("importance"), (int, float)):
                importance[c, int(entry["neuron"])] = float(entry["importance"])
    if not any(neurons.values()):
        raise UsageError(
            f'--neurons: {file}: no neuron is marked; set "spurious": true where it applies, '
            "or use --neurons auto"
        )
    return Marks(file, neurons, importance=importance)


def _json(file: str) -> Any:
    try:
        return json_of(regular(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--neurons: cannot read {file} ({error.strerror})") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"--neurons: {file} is not JSON ({error})") from None


def _entries(file: str, name: str, entries: Any) -> list[Mapping[str, Any]]:
    if not isinstance(entries, list):
        raise UsageError(f"--neurons: {file}: class {name!r}: expected a list of neurons")
    for position, entry in enumerate(entries):
        where = f"--neurons: {file}: class {name!r}, entry {position}"
        neuron = entry.get("neuron") if isinstance(entry, Mapping) else None
        if not isinstance(neuron, int) or isinstance(neuron, bool) or neuron < 0:
            raise UsageError(f'{where}: expected "neuron" with a number from 0')
        if entry.get("spurious", 0) not in (True, False, None) or "spurious" not in entry:
            raise UsageError(f'{where}: expected "spurious" with true, false or null')
    return entries


def _from_samples(file: str, train: Samples) -> Marks:
    """The training samples marked `spurious` in the report."""
    try:
        rows = read_marks(file)
    except UsageError as error:
        raise UsageError(str(error).replace("--exclude:", "--neurons:")) from None
    marked = [(line, name) for line, name, mark, _ in rows if mark == "spurious"]
    if not marked:
        raise UsageError(f"--neurons: {file}: no sample is marked spurious")
    place = {str(name): i for i, name in enumerate(train.ids.tolist())}
    found = []
    for line, name in marked:
        plain = name.removeprefix(GUARD)
        index = place.get(plain, place.get(name))
        if index is None:
            raise UsageError(
                f"--neurons: {file}, line {line}: no training sample {plain!r} in "
                f"{train.source}; were the marks made for other data?"
            )
        found.append(index)
    return Marks(file, samples=tuple(found))


def write_template(
    folder: Path, neurons: tuple[tuple[Neuron, ...], ...], part: Samples, session: Session
) -> None:
    """The template and its page, and what to do with them."""
    listed = {
        name: [_entry(neuron, part) for neuron in row]
        for name, row in zip(part.classes, neurons, strict=True)
    }
    text = json.dumps(listed, indent=2, ensure_ascii=False)
    run = RunFolder(folder)
    run.write_text(TEMPLATE, text + "\n")
    run.write_text(PAGE, render_page(part, neurons))
    session.note(
        f"neurons: ranked by the most important ones; to choose, look at {folder / PAGE}, set "
        f'"spurious" in {folder / TEMPLATE} and rank again with --neurons and that file'
    )


def _entry(neuron: Neuron, part: Samples) -> dict[str, Any]:
    return {
        "neuron": neuron.neuron,
        "importance": round(neuron.importance, 6),
        "spurious": None,
        "examples": [str(part.ids[i]) for i in neuron.examples],
    }


def render_page(part: Samples, neurons: tuple[tuple[Neuron, ...], ...]) -> str:
    """A page with the most exciting samples of every neuron; opens without a network."""
    from jinja2 import Environment, StrictUndefined

    rows = [i for row in neurons for n in row for i in n.examples][:MOST_PICTURES]
    unique = list(dict.fromkeys(rows))
    side = side_for(len(unique))
    read = pictures_of(part, np.arange(len(part), dtype=np.int64), side)
    pictures = dict(zip(unique, addresses(read, unique, side), strict=True))

    def example(i: int) -> dict[str, Any]:
        shot = pictures.get(i)
        return {"id": str(part.ids[i]), "picture": shot}

    classes = [
        {
            "name": name,
            "neurons": [
                {
                    "neuron": n.neuron,
                    "importance": f"{n.importance:.3g}",
                    "examples": [example(i) for i in n.examples],
                }
                for n in row
            ],
        }
        for name, row in zip(part.classes, neurons, strict=True)
    ]
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(_PAGE)
    return page.render(classes=classes, template=TEMPLATE, side=side)


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title>Neurons to mark</title>
<link rel="icon" href="data:,">
<style>
:root { --ink: #1a1a1a; --paper: #fff; --muted: #555; --line: #ccc }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ebee; --paper: #12161b; --muted: #a3adb8; --line: #333c46 }
}
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem;
  color: var(--ink); background: var(--paper) }
section { border-top: 1px solid var(--line); margin-top: 2rem }
h2 { overflow-wrap: anywhere; unicode-bidi: isolate }
ul { display: flex; flex-wrap: wrap; gap: .5rem; list-style: none; padding: 0 }
li { overflow-wrap: anywhere; width: min({{ side }}px, 100%); unicode-bidi: isolate;
  font-size: .75rem; color: var(--muted) }
img { display: block; max-width: 100% }
</style>
<h1>Neurons to mark</h1>
<p>For each class: the neurons that count most for it, with the training samples that excite them
most. Where what the samples have in common is not what makes the class (a background, another
object), set <code>"spurious": true</code> for the neuron in <code>{{ template }}</code>,
<code>false</code> where it is; then rank again with <code>--neurons</code> and that file.</p>
{% for class in classes %}
<section>
<h2>{{ class.name }}</h2>
{% for entry in class.neurons %}
<h3>neuron {{ entry.neuron }}, importance {{ entry.importance }}</h3>
<ul>
{% for example in entry.examples %}
<li>{% if example.picture %}<img src="{{ example.picture }}" alt="">{% endif %}{{ example.id }}</li>
{% endfor %}
</ul>
{% endfor %}
</section>
{% endfor %}
</html>
"""
