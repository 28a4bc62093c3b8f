"""Networks: the same seed gives the same weights, weights that do not fit are refused."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from sebra.engine.networks import LINEAR, SMALL, EnsembleHead, NetworkSpec, build
from sebra.engine.weights import Weights, hub_weights, read_weights
from sebra.errors import UsageError

SPECS = [
    NetworkSpec(LINEAR, (5,), 3),
    NetworkSpec(LINEAR, (5,), 3, hidden=4),
    NetworkSpec(SMALL, (3, 16, 16), 2),
    NetworkSpec(SMALL, (3, 16, 16), 2, heads=3),
]


def ids(spec: NetworkSpec) -> str:
    return f"{spec.backbone}-{spec.hidden}-{spec.heads}"


@pytest.mark.parametrize("spec", SPECS, ids=ids)
def test_a_seed_decides_the_weights_and_leaves_the_random_state_alone(spec):
    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    one, again, other = build(spec, 7), build(spec, 7), build(spec, 8)
    assert torch.equal(torch.rand(3), expected)
    for name, value in one.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
    if list(one.body.parameters()):
        assert any(
            not torch.equal(a, b)
            for a, b in zip(one.body.parameters(), other.body.parameters(), strict=True)
        )


@pytest.mark.parametrize("spec", SPECS, ids=ids)
def test_a_fresh_network_is_undecided_and_its_spec_builds_it_again(spec):
    assert NetworkSpec.from_dict(spec.to_dict()) == spec
    network = build(spec, 0).eval()
    x = torch.rand(2, *spec.inputs) * 200
    assert network.embed(x).shape == (2, network.width)
    torch.testing.assert_close(network(x), torch.zeros(2, spec.classes))


def test_images_may_be_bytes_or_floats():
    network = build(SPECS[2], 0).eval()
    torch.nn.init.ones_(network.head.weight)
    pixels = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    torch.testing.assert_close(network(pixels), network(pixels.float()))


def test_standardise_gives_features_of_unit_length_on_average():
    torch.manual_seed(0)
    x = torch.randn(5000, 5) * torch.tensor([1.0, 10, 0.1, 3, 0]) + torch.tensor([0.0, 5, -2, 1, 7])
    network = build(SPECS[0], 0)
    network.standardise(x.mean(0), x.std(0))
    z = network.embed(x)
    torch.testing.assert_close(z.mean(0), torch.zeros(5), atol=1e-3, rtol=0)
    # Divided by the root of the dimension: the four features that vary share a length near 4/5.
    assert float((z**2).sum(1).mean()) == pytest.approx(4 / 5, rel=0.02)
    assert torch.isfinite(z).all()  # the constant feature too


def test_an_ensemble_weighs_its_heads_by_sample():
    head = EnsembleHead(2, 3, heads=2)
    torch.manual_seed(0)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    z = torch.randn(4, 2)
    each, share = head.each(z), head.domain(z).softmax(1)
    expected = torch.stack([sum(share[i, k] * each[i, k] for k in range(2)) for i in range(4)])
    torch.testing.assert_close(head(z), expected)


def backbone_weights() -> dict[str, torch.Tensor]:
    return {
        k: v.clone(memory_format=torch.contiguous_format)
        for k, v in build(SPECS[2], 3).body.state_dict().items()
    }


def test_weights_from_a_file_fill_the_backbone(tmp_path):
    tensors = backbone_weights()
    halves = {k: v.half() if v.dim() > 1 else v for k, v in tensors.items()}
    halves["fc.weight"] = torch.zeros(2, 2)  # a head of other classes is passed over
    save_file(halves, str(tmp_path / "w.safetensors"))
    weights = read_weights(str(tmp_path / "w.safetensors"))
    network = build(SPECS[2], 0, weights)
    for name, value in network.body.state_dict().items():
        torch.testing.assert_close(value, tensors[name], atol=1e-3, rtol=1e-3)
        assert value.dtype == tensors[name].dtype
    save_file({**halves, "fc.weight": torch.ones(2, 2)}, str(tmp_path / "v.safetensors"))
    assert read_weights(str(tmp_path / "v.safetensors")).digest != weights.digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("0.weight"), r"1 tensors missing, 0 unknown.*0\.weight"),
        (lambda t: t.update({"layer9.x": torch.zeros(1)}), r"1 unknown.*layer9\.x"),
        (lambda t: t.update({"0.weight": torch.zeros(1)}), r"1 of another shape.*0\.weight"),
    ],
    ids=["missing", "unknown", "shape"],
)
def test_weights_that_do_not_fit_are_refused(change, words):
    tensors = backbone_weights()
    change(tensors)
    with pytest.raises(UsageError, match=rf"--weights: w does not fit {SMALL}.*{words}"):
        build(SPECS[2], 0, Weights("w", "d", tensors))


def test_files_that_hold_no_weights_are_refused(tmp_path):
    with pytest.raises(UsageError, match="--weights: no file"):
        read_weights(str(tmp_path / "absent.safetensors"))
    (tmp_path / "text").write_text("words", encoding="utf-8")
    with pytest.raises(UsageError, match="not a safetensors file"):
        read_weights(str(tmp_path / "text"))


def test_an_unknown_backbone_is_refused_with_near_names():
    with pytest.raises(UsageError, match=r"no model 'esnet18'.*resnet18"):
        build(NetworkSpec("esnet18", (3, 32, 32), 2), 0)


def test_offline_the_hub_is_not_asked(monkeypatch):
    monkeypatch.setenv("SEBRA_OFFLINE", "1")
    assert hub_weights("resnet18") is None


@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "efficientnet_lite0"])
def test_the_width_is_that_of_what_a_network_gives(name):
    """Some have a layer more between the last map and their classifier."""
    network = build(NetworkSpec(name, (3, 64, 64), 3), 0).eval()
    pictures = torch.zeros(2, 3, 64, 64, dtype=torch.uint8)
    with torch.no_grad():
        assert network.embed(pictures).shape == (2, network.width)
        assert network(pictures).shape == (2, 3)
