"""From DATA and the run's settings to tasks on a device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from sebra.engine import networks
from sebra.engine.device import choose_device, setup
from sebra.engine.networks import LINEAR, RANDOM, SMALL, NetworkSpec
from sebra.engine.session import Session
from sebra.engine.text_network import DEFAULT_ENCODER, read_encoder
from sebra.engine.weights import Weights, hub_weights, read_weights
from sebra.errors import UsageError
from sebra.loading.decode import auto_size
from sebra.loading.texts import fit_tokeniser
from sebra.ranking.registry import ranker_class
from sebra.runs.config import preset_mode, ranking_network
from sebra.runs.meter import Meter
from sebra.samples.fingerprint import fingerprint
from sebra.samples.open import open_samples
from sebra.samples.table import Samples, Texts, untelling
from sebra.samples.validate import require_trainable
from sebra.workflows.prepared import Prepared, Source

DEFAULT_BACKBONE = "resnet18"
TINY_PIXELS = 64  # up to this side: the small network from scratch, or fixed random features


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
    source: Source, session: Session, meter: Meter, samples: Samples | None, preferred: str | None
) -> Prepared:
    device = choose_device(source.device)
    setup(device)
    if samples is None:
        samples = open_samples(source.data, source.attributes)
    if source.exclude is not None:
        from sebra.samples.marks import apply_marks

        before, samples = samples, apply_marks(samples, source.exclude)
        place = {name: row for row, name in enumerate(before.ids.tolist())}
        old = before.labels[[place[name] for name in samples.ids.tolist()]]
        session.note(
            f"--exclude: {len(before) - len(samples)} samples left out, "
            f"{int((old != samples.labels).sum())} with another label"
        )
        require_trainable(samples)
    for line in untelling(samples):
        session.note(line)
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
    fixed = networks.fixed_side(backbone) or size
    if source.image_size is not None and fixed != size:
        raise UsageError(f"--image-size {size}: {backbone} takes pictures of {fixed} px alone")
    size = fixed
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


def ranked_on(
    prepared: Prepared, ranker: str, preset: str | None, meter: Meter, mode: str | None = None
) -> Prepared:
    """The data set with the network that ranks: the preset's, else a `mode`, else as is usual."""
    weights, own = ranking_network(preset, ranker)
    return for_ranking(prepared, weights, own or mode or ranker_class(ranker).usual_mode, meter)


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
    lacking = source.weights is None and weights is None and backbone != SMALL
    if lacking and wanted == "features" and source.backbone is None:
        session.note(
            f"no pretrained {backbone} (the hub is out of reach): fixed random features instead, "
            "which see colours and textures, not things; better: --weights FILE (safetensors), a "
            "mirror in HF_ENDPOINT, or --weights none to train from scratch"
        )
        return RANDOM, None, "features"
    if lacking:
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
        found = hub_weights(backbone)
        if found is None and option == "hub":
            raise UsageError(f"--weights hub: no pretrained {backbone} could be fetched")
        return found
    weights = read_weights(option)
    networks.build(NetworkSpec(backbone, (3, 32, 32), 2), 0, weights)  # refuses what does not fit
    return weights
