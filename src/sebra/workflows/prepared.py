"""A data set on the device with the network that was chosen for it, and where both came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from sebra.engine import distributed, networks
from sebra.engine.cells import over_cells
from sebra.engine.features import Features, Frozen, moments
from sebra.engine.networks import LINEAR, Network, NetworkSpec
from sebra.engine.patches import Basis
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.engine.text_network import Encoder
from sebra.engine.views import views_of_pictures
from sebra.engine.weights import Weights
from sebra.errors import UsageError
from sebra.loading.decode import MAX_SIZE, load_images
from sebra.loading.descriptors import described
from sebra.loading.inputs import Inputs, content_key
from sebra.loading.texts import TokenArray, Tokeniser, load_texts
from sebra.ranking.ranking import Ranker, Ranking
from sebra.runs.meter import Meter
from sebra.samples.table import Fault, FeatureArray, ImageArray, Samples, Texts
from sebra.values import require

MOST_TIMES = 4  # that a picture is enlarged for a frozen network: more shows nothing new

Readable = FeatureArray | ImageArray | TokenArray
Build = Callable[[int, int], Network]  # (seed, hidden) -> network on the device


@dataclass(frozen=True)
class Source:
    """Which data, which network, which device: the options that all long commands share."""

    data: str
    seed: int = 0
    device: str = "auto"
    mode: str = "auto"
    backbone: str | None = None
    weights: str | None = None
    image_size: int | None = None
    attributes: tuple[str, ...] | None = None
    exclude: str | None = None

    def __post_init__(self) -> None:
        require("--seed", self.seed)
        require("--mode", self.mode)
        require("--image-size", self.image_size)

    def to_dict(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if v is not None}


@dataclass
class Prepared:
    """A data set with its splits put on the device when they are first asked for."""

    source: Source
    samples: Samples
    device: torch.device
    mode: str  # features, finetune or scratch
    backbone: str
    weights: Weights | None
    image_size: int | None
    session: Session
    meter: Meter
    encoder: Encoder | None = None  # of text
    tokeniser: Tokeniser | None = None
    _contents: dict[str, tuple[Samples, Readable]] = field(default_factory=dict)
    _splits: dict[str, tuple[Samples, Inputs]] = field(default_factory=dict)
    _features: dict[str, Features] = field(default_factory=dict)
    _patches: dict[str, Inputs] = field(default_factory=dict)
    _all: dict[str, Inputs] = field(default_factory=dict)  # penultimate features and finer cells
    _figures: dict[str, torch.Tensor] = field(default_factory=dict)
    _frozen: Frozen | None = None  # where content is frozen and no features are given
    _top: Build | None = None  # heads over the features that methods see
    _head: Build | None = None  # over patch features
    wide: bool = False  # whether tasks have finer cells beside the penultimate features
    seen: int = 0  # the side that the frozen network sees pictures at; 0 for their own
    _enlarged: list[Prepared] = field(default_factory=list)

    @property
    def faults(self) -> tuple[Fault, ...]:
        return self.samples.faults

    def readable(self, name: str) -> Samples:
        """The samples of a split whose content can be read; no network has run yet."""
        return self._read(name)[0]

    def split(self, name: str) -> tuple[Samples, Inputs]:
        """The readable samples of a split and their content on the device."""
        if name not in self._splits:
            self._splits[name] = self._load(name)
        return self._splits[name]

    def enlarged(self) -> Prepared:
        """The same for last layers: a frozen network sees small pictures larger.

        It was trained on pictures of the largest size that files are read at, and tells things
        better there. Patterns show at the pictures' own size, at which rankings stay.
        """
        size = self.image_size or MAX_SIZE
        fixed = self.mode != "features" or self.weights is None or self.source.image_size
        if fixed or size >= MAX_SIZE or self.seen:
            return self
        if not self._enlarged:
            seen = min(MAX_SIZE, MOST_TIMES * size)
            self.session.note(f"the frozen network sees pictures enlarged to {seen} px")
            passes: dict[str, Any] = {f: {} for f in ("_splits", "_features", "_patches", "_all")}
            passes |= {"seen": seen, "_frozen": None, "_top": None, "_head": None}
            self._enlarged.append(replace(self, **passes))
        own = ("source", "samples", "session", "meter")
        return replace(self._enlarged[0], **{f: getattr(self, f) for f in own})

    def widened(self) -> Prepared:
        """The same with tasks that have finer cells as well, where there are any."""
        self.split("train")
        return replace(self, wide=True, _top=None) if self._patches else self

    def task(self, name: str = "train") -> Task:
        """A split as a task; attributes stay behind."""
        samples, inputs = self._seen(name)
        if self.mode == "features" and self._top is None:
            self._top = head_over(self._seen("train")[1], len(samples.classes))
        task = self._task(samples, inputs, self.build)
        return replace(task, core=self.split(name)[1].shape[0]) if self.wide else task

    def over_cells(self, network: Network) -> tuple[NetworkSpec, Network]:
        """What sees the pictures themselves, and a network over wide features made for it."""
        core, basis = self.split("train")[1].shape[0], self._features["train"].basis
        assert basis is not None
        spec = replace(self.backbone_spec(), cells=basis.finer)
        return spec, over_cells(network, core, basis)

    def _seen(self, name: str) -> tuple[Samples, Inputs]:
        samples, inputs = self.split(name)
        if not self.wide:
            return samples, inputs
        if name not in self._all:
            self._all[name] = Inputs(self._features[name].all, self.device)
        return samples, self._all[name]

    def rank_task(self, ranker: Ranker[Any] | None = None, name: str = "train") -> Task:
        """A split as a ranker sees it: over frozen features of pictures, their patch features."""
        samples, _ = self.split(name)
        if name not in self._patches or (ranker is not None and not ranker.sees_patches):
            return self._with_views(self.task(name), name, None, ranker)
        if self._head is None:
            self._head = head_over(self._patches["train"], len(samples.classes))
        task = self._task(samples, self._patches[name], self._head)
        return self._with_views(task, name, self._features[name].basis, ranker)

    def _with_views(
        self, task: Task, name: str, basis: Basis | None, ranker: Ranker[Any] | None
    ) -> Task:
        """The task with figures of its pictures, for rankers that name patterns."""
        content = self._contents[name][1]
        if self.mode != "features" or not isinstance(content, ImageArray):
            return task
        if ranker is not None and not ranker.names_patterns:
            return task
        if name not in self._figures:
            with self._counting("features", f"figures {name}") as shown, distributed.main_first():
                pictures = Inputs(content, self.device)
                found = described(pictures, content_key(content), shown)
            self._figures[name] = torch.from_numpy(np.array(found)).to(self.device)
        views = views_of_pictures(task.inputs.shape[0], basis)
        return replace(task, figures=self._figures[name], views=views)

    def patterns(self, name: str, ranking: Ranking | None) -> torch.Tensor | None:
        """How far the samples of a split follow the patterns of a ranking; None if not known."""
        if ranking is None or ranking.patterns is None or self.mode != "features":
            return None
        task = self.rank_task(name=name)
        everyone = torch.arange(len(task), device=self.device)
        follows = ranking.patterns.follows(task.seen(everyone), task.targets)
        return torch.from_numpy(follows).float()

    def _task(self, samples: Samples, inputs: Inputs, build: Build) -> Task:
        return Task(
            inputs=inputs,
            rows=torch.arange(len(samples), device=self.device),
            targets=torch.from_numpy(samples.labels).to(self.device),
            classes=len(samples.classes),
            build=build,
            device=self.device,
            seed=self.source.seed,
        )

    def build(self, seed: int, hidden: int) -> Network:
        """A fresh network of the run's kind on the device."""
        if self._top is not None:
            return self._top(seed, hidden)
        spec = self.backbone_spec(len(self.samples.classes))
        return networks.build(spec, seed, self.weights).to(self.device)

    def backbone_spec(self, classes: int = 1) -> NetworkSpec:
        """The network that sees the content itself."""
        source = self.weights.source if self.weights else "none"
        if self.encoder is not None and self.tokeniser is not None:
            shape, config = self.tokeniser.shape, self.encoder.config
            return NetworkSpec(self.backbone, shape, classes, source, encoder=config)
        size = self.image_size or 0
        return NetworkSpec(self.backbone, (3, size, size), classes, weights=source, seen=self.seen)

    def _load(self, name: str) -> tuple[Samples, Inputs]:
        part, content = self._read(name)
        inputs = Inputs(content, self.device)
        if self.mode != "features" or isinstance(content, FeatureArray):
            return part, inputs
        features = self._extract(content, inputs, name)
        self._features[name] = features
        if features.patches is not None and features.basis is not None:
            self._patches[name] = Inputs(features.patches, self.device)
        return part, Inputs(features.pooled, self.device)

    def _read(self, name: str) -> tuple[Samples, Readable]:
        if name not in self._contents:
            part = self.samples.take(self.samples.rows(name))
            if len(part) == 0:
                raise UsageError(f"{self.source.data}: has no {name} split")
            if isinstance(part.content, FeatureArray):
                self._contents[name] = part, part.content
            elif isinstance(part.content, Texts):
                self._contents[name] = part, self._tokenise(part.content, name)
            else:
                self._contents[name] = self._decode(part, name)
        return self._contents[name]

    def _decode(self, part: Samples, name: str) -> tuple[Samples, ImageArray]:
        with self._counting("decode", f"decode {name}") as shown, distributed.main_first():
            known = len(part.faults)
            part, images = load_images(part, self.image_size, shown)
        new = part.faults[known:]
        if new:
            self.samples = self.samples.without(new)
            self.session.note(
                f"{len(new)} unreadable images of {name} left out (see quarantine.csv)"
            )
        return part, images

    def _tokenise(self, texts: Texts, name: str) -> TokenArray:
        assert self.tokeniser is not None
        with self._counting("decode", f"tokenise {name}") as shown:
            return load_texts(texts, self.tokeniser, shown)

    def _extract(self, content: ImageArray | TokenArray, inputs: Inputs, name: str) -> Features:
        if name != "train" and len(self.samples.rows("train")):
            self.split("train")
        with self._counting("features", f"features {name}") as shown:
            spec, look, key = self.backbone_spec(), name == "train", content_key(content)
            if self._frozen is None:
                self._frozen = Frozen(spec, self.weights, inputs, key, look)
            return self._frozen.features(inputs, key, shown)

    @contextmanager
    def _counting(self, phase: str, name: str) -> Iterator[Callable[[int, int], None]]:
        """A phase that shows how many are done of how many, once there is something to do."""
        begun: list[str] = []
        progress = self.session.progress

        def update(done: int, total: int) -> None:
            if not begun:
                begun.append(name)
                progress.start(name, total)
            progress.advance(done, images=done)

        with self.meter.phase(phase):
            try:
                yield update
            finally:
                if begun:
                    progress.finish()


def head_over(inputs: Inputs, classes: int) -> Build:
    """Builds heads over these features, standardised by them."""
    found = moments(inputs)

    def build(seed: int, hidden: int) -> Network:
        spec = NetworkSpec(LINEAR, (inputs.shape[0],), classes, hidden=hidden)
        network = networks.build(spec, seed).to(inputs.device)
        network.standardise(*found)
        return network

    return build
