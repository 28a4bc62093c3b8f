"""From DATA and the run's settings to tasks on a device."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sebra.engine import distributed, networks
from sebra.engine.device import choose_device, setup
from sebra.engine.features import Features, extract_features, moments
from sebra.engine.networks import LINEAR, RANDOM, SMALL, Network, NetworkSpec, Weights
from sebra.engine.patches import Basis
from sebra.engine.session import Session
from sebra.engine.task import Task
from sebra.engine.text_network import DEFAULT_ENCODER, Encoder, read_encoder
from sebra.errors import UsageError
from sebra.loading.decode import auto_size, load_images
from sebra.loading.inputs import Inputs
from sebra.loading.texts import TokenArray, Tokeniser, fit_tokeniser, load_texts
from sebra.runs.config import preset_mode
from sebra.runs.meter import Meter
from sebra.samples.fingerprint import fingerprint
from sebra.samples.open import open_samples
from sebra.samples.table import SPLITS, Fault, FeatureArray, ImageArray, Samples, Texts
from sebra.samples.validate import require_trainable

MODES = ("auto", "features", "finetune")
DEFAULT_BACKBONE = "resnet18"
Readable = FeatureArray | ImageArray | TokenArray
Build = Callable[[int, int], Network]  # (seed, hidden) -> network on the device
TINY_PIXELS = 64  # up to this side: the small network from scratch, or fixed random features


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
    _patches: dict[str, Inputs] = field(default_factory=dict)
    _basis: tuple[str, Basis] | None = None
    _moments: tuple[torch.Tensor, torch.Tensor] | None = None
    _head: Build | None = None  # over patch features

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

    def task(self, name: str = "train") -> Task:
        """A split as a task; attributes stay behind."""
        samples, inputs = self.split(name)
        if self.mode == "features" and self._moments is None:
            self._moments = moments(self.split("train")[1])
        return self._task(samples, inputs, self.build)

    def rank_task(self, ranker: Any = None, name: str = "train") -> Task:
        """A split as a ranker sees it: over frozen features of pictures, their patch features."""
        samples, _ = self.split(name)
        if name not in self._patches or getattr(ranker, "penultimate", False):
            return self.task(name)
        if self._head is None:
            self._head = head_over(self._patches["train"], len(samples.classes))
        return self._task(samples, self._patches[name], self._head)

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

    def with_seed(self, seed: int) -> Prepared:
        """The same data set for a run with another seed; what lies on the device is shared."""
        # All splits first: unreadable images leave `samples` when their split is loaded.
        for name in SPLITS:
            if len(self.samples.rows(name)):
                self.task(name)
        return replace(self, source=replace(self.source, seed=seed))

    def build(self, seed: int, hidden: int) -> Network:
        """A fresh network of the run's kind on the device."""
        return build_network(self.spec(hidden), seed, self.weights, self._moments, self.device)

    def spec(self, hidden: int = 0) -> NetworkSpec:
        samples, inputs = self.split("train")
        classes = len(samples.classes)
        if self.mode == "features":
            return NetworkSpec(LINEAR, (inputs.shape[0],), classes, hidden=hidden)
        return self.backbone_spec(classes)

    def backbone_spec(self, classes: int = 1) -> NetworkSpec:
        """The network that sees the content itself."""
        source = self.weights.source if self.weights else "none"
        if self.encoder is not None and self.tokeniser is not None:
            shape, config = self.tokeniser.shape, self.encoder.config
            return NetworkSpec(self.backbone, shape, classes, source, encoder=config)
        size = self.image_size or 0
        return NetworkSpec(self.backbone, (3, size, size), classes, weights=source)

    def _load(self, name: str) -> tuple[Samples, Inputs]:
        part, content = self._read(name)
        inputs = Inputs(content, self.device)
        if self.mode != "features" or isinstance(content, FeatureArray):
            return part, inputs
        features = self._extract(content, inputs, name)
        if features.patches is not None and features.basis is not None:
            self._patches[name] = Inputs(features.patches, self.device)
            if name == "train":
                self._basis = _key(content), features.basis
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
        show = _Bar(self.session, f"decode {name}", len(part))
        with self.meter.phase("decode"), show, distributed.main_first():
            known = len(part.faults)
            part, images = load_images(part, self.image_size, show.update)
        new = part.faults[known:]
        if new:
            self.samples = self.samples.without(new)
            self.session.note(f"{len(new)} unreadable images of {name} set aside (quarantine.csv)")
        return part, images

    def _tokenise(self, texts: Texts, name: str) -> TokenArray:
        assert self.tokeniser is not None
        show = _Bar(self.session, f"tokenise {name}", len(texts.first))
        with self.meter.phase("decode"), show:
            return load_texts(texts, self.tokeniser, show.update)

    def _extract(self, content: ImageArray | TokenArray, inputs: Inputs, name: str) -> Features:
        look: bool | tuple[str, Basis] = name == "train"
        if name == "val" and len(self.samples.rows("train")):  # where a ranking is watched
            self.split("train")
            look = self._basis or False
        show = _Bar(self.session, f"features {name}", len(inputs))
        with self.meter.phase("features"), show:
            network = networks.build(self.backbone_spec(), 0, self.weights).to(self.device)
            return extract_features(network, self.weights, inputs, _key(content), show.update, look)


def head_over(inputs: Inputs, classes: int) -> Build:
    """Builds heads over these features, standardised by them."""
    found = moments(inputs)

    def build(seed: int, hidden: int) -> Network:
        spec = NetworkSpec(LINEAR, (inputs.shape[0],), classes, hidden=hidden)
        return build_network(spec, seed, None, found, inputs.device)

    return build


def build_network(
    spec: NetworkSpec,
    seed: int,
    weights: Weights | None,
    moments_: tuple[torch.Tensor, torch.Tensor] | None,
    device: torch.device,
) -> Network:
    over_features = len(spec.inputs) == 1
    network = networks.build(spec, seed, None if over_features else weights).to(device)
    if moments_ is not None and over_features:
        network.standardise(*moments_)
    return network


def prepare(
    source: Source,
    session: Session,
    meter: Meter,
    samples: Samples | None = None,
    preset: str | None = None,
) -> Prepared:
    """Opens DATA, settles mode, backbone and weights, reads the training split.

    Where the user leaves the mode open it is the `usual_mode`, if data and network allow it. Says
    what it chose when nothing is wrong.
    """
    with session.checking():
        prepared = _prepare(source, session, meter, samples, preset_mode(preset))
        prepared.readable("train")
        session.bind("content", fingerprint(prepared.samples))
    return prepared


def _prepare(
    source: Source,
    session: Session,
    meter: Meter,
    samples: Samples | None,
    preferred: str | None,
) -> Prepared:
    if source.mode not in MODES:
        raise UsageError(f"--mode: {source.mode!r} is not one of {', '.join(MODES)}")
    if source.image_size is not None and source.image_size < 1:
        raise UsageError(f"--image-size: must be at least 1, not {source.image_size}")
    device = choose_device(source.device)
    setup(device)
    if samples is None:
        samples = open_samples(source.data, source.attributes)
    if source.exclude is not None:
        from sebra.samples.marks import apply_marks

        samples = apply_marks(samples, source.exclude)
        require_trainable(samples)
    if samples.kind == "features":
        if source.mode == "finetune":
            raise UsageError(f"--mode finetune: {source.data} holds features, not images")
        if source.backbone is not None or source.weights is not None:
            raise UsageError(f"--backbone, --weights: {source.data} holds features, not images")
        return Prepared(source, samples, device, "features", LINEAR, None, None, session, meter)
    if isinstance(samples.content, Texts):
        usual = usual_mode(preferred, samples, device)
        return _prepare_text(source, samples, device, usual, session, meter)
    size = source.image_size or auto_size(samples.take(samples.rows("train")))
    usual = usual_mode(preferred, samples, device)
    backbone, weights, mode = _network_choice(source, size, usual, session)
    origin = "pretrained" if weights else "fixed" if backbone == RANDOM else "from scratch"
    session.note(
        f"mode {'features' if mode == 'features' else 'finetune'}: {backbone} ({origin}) "
        f"at {size} px on {device.type}"
    )
    return Prepared(source, samples, device, mode, backbone, weights, size, session, meter)


def for_ranking(
    prepared: Prepared, weights: str | None, mode: str | None, meter: Meter
) -> Prepared:
    """The data set with the network that ranks, where it is another than the one that is trained.

    weights: those that it starts from. mode: `features` ranks over the frozen backbone. Heads over
    frozen features are ranked with themselves, and a network from scratch cannot be frozen.
    """
    p = prepared
    freeze = mode == "features" and p.weights is not None and weights != "none"
    if p.mode == "features" or (weights is None and not freeze):
        return p
    source = replace(
        p.source,
        backbone=p.backbone,
        image_size=p.image_size,
        weights=weights or p.source.weights,
        mode="features" if freeze else "finetune",
    )
    found = prepare(source, p.session, meter, p.samples)
    return found if freeze else replace(found, _splits=p._splits)  # on the device already


def usual_mode(preferred: str | None, samples: Samples, device: torch.device) -> str:
    """What a preset is made for, or the data set, or what the device is quick enough for."""
    return preferred or samples.mode or ("features" if device.type == "cpu" else "finetune")


def _prepare_text(
    source: Source,
    samples: Samples,
    device: torch.device,
    usual: str,
    session: Session,
    meter: Meter,
) -> Prepared:
    if source.image_size is not None:
        raise UsageError(f"--image-size: {source.data} holds text, not images")
    if source.weights not in (None, "none"):
        raise UsageError(
            f"--weights: {source.data} holds text, whose weights come with --backbone FOLDER; "
            "only `none` (from scratch) can be given"
        )
    scratch = source.weights == "none"
    if scratch and source.mode == "features":
        raise UsageError("--mode features, --weights none: features need pretrained weights")
    mode = source.mode
    if mode == "auto":
        mode = "finetune" if scratch else usual
    encoder = read_encoder(source.backbone or DEFAULT_ENCODER)
    texts = samples.take(samples.rows("train")).content
    assert isinstance(texts, Texts)
    tokeniser = fit_tokeniser(
        encoder.vocabulary, texts, encoder.most_tokens, apart=mode == "features"
    )
    session.note(
        f"mode {mode}: {Path(encoder.name).name} ({'from scratch' if scratch else 'pretrained'}) "
        f"with {tokeniser.length} tokens on {device.type}"
    )
    return Prepared(
        source,
        samples,
        device,
        "scratch" if scratch else mode,
        encoder.name,
        None if scratch else encoder.weights,
        None,
        session,
        meter,
        encoder,
        tokeniser,
    )


def _network_choice(
    source: Source, size: int, usual: str, session: Session
) -> tuple[str, Weights | None, str]:
    wanted = usual if source.mode == "auto" else source.mode
    backbone = source.backbone
    if backbone is None:
        backbone = DEFAULT_BACKBONE
        if size <= TINY_PIXELS and source.weights in (None, "none"):
            backbone = RANDOM if wanted == "features" else SMALL
    networks.check_backbone(backbone)
    weights = _weights(source.weights, backbone)
    if backbone == RANDOM:
        if source.mode == "finetune":
            raise UsageError(f"--backbone {RANDOM}: fixed random features cannot be fine-tuned")
        return backbone, None, "features"
    if source.mode == "features" and weights is None:
        raise UsageError(
            f"--mode features: needs pretrained weights for {backbone}; give --weights FILE "
            "(the hub could not be reached or has none)"
        )
    if source.weights is None and weights is None and backbone != SMALL:
        session.note(
            f"no pretrained weights for {backbone} (hub out of reach, no --weights FILE): "
            "training from scratch, which needs more data and time"
        )
    if wanted == "features" and weights is not None:
        return backbone, weights, "features"
    return backbone, weights, "finetune" if weights else "scratch"


def _weights(option: str | None, backbone: str) -> Weights | None:
    if option == "none" or backbone in (SMALL, RANDOM):
        if option not in (None, "none"):
            raise UsageError(f"--weights: the {backbone} network has no pretrained weights")
        return None
    if option is None or option == "hub":
        found = networks.hub_weights(backbone)
        if found is None and option == "hub":
            raise UsageError(f"--weights hub: no pretrained {backbone} could be fetched")
        return found
    weights = networks.read_weights(option)
    weights.fill(networks.build(NetworkSpec(backbone, (3, 32, 32), 2), 0).body, backbone)
    return weights


def _key(content: ImageArray | TokenArray) -> str:
    """Identifies pixels or tokens: the cache entry they are mapped from, or their content."""
    array: Any = content.pixels if isinstance(content, ImageArray) else content.values
    state = hashlib.sha256(np.ascontiguousarray(content.rows).tobytes())
    name = getattr(array, "filename", None)
    if name is not None:
        state.update(str(Path(name).resolve()).encode())
    else:
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()[:32]


class _Bar:
    """A progress bar that appears only when there is something to do."""

    def __init__(self, session: Session, name: str, total: int) -> None:
        self.session, self.name, self.total, self.open = session, name, total, False

    def update(self, done: int, total: int) -> None:
        if not self.open:
            self.session.progress.start(self.name, total)
            self.open = True
        self.session.progress.advance(done, images=done)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.open:
            self.session.progress.finish()
