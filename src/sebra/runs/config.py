"""From presets and `--set key=value` to one frozen configuration per method."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from sebra.debiasing.registry import METHODS
from sebra.errors import UsageError
from sebra.ranking.registry import RANKERS
from sebra.settings import of_mode
from sebra.whole import of_toml

PRESETS = Path(__file__).parent / "presets"
# Fields that say how a network begins and is stepped. A preset's values belong to fine-tuning, or
# to heads on frozen features where it says `mode = "features"`: in the other mode they are passed
# over.
STEP_FIELDS = frozenset({"optimizer", "lr", "momentum", "weight_decay", "batch", "start"})
NO_PRESET = "none"
_RANKER = "rank."  # begins an override that is for the ranker, not for the method

Config = TypeVar("Config")


@dataclasses.dataclass(frozen=True)
class Settled(Generic[Config]):
    """A configuration, and of every field where its value is from.

    origin: `default`, `mode`, `preset NAME`, `--set` or `--tune`.
    """

    config: Config
    origin: Mapping[str, str]

    def tables(self, name: str = "settings") -> dict[str, dict[str, Any]]:
        """What `config.toml` holds of it: the values, and where they are from."""
        values = dataclasses.asdict(self.config)  # type: ignore[call-overload]
        values = {k: v for k, v in values.items() if v is not None}
        return {name: values, f"{name}_from": {k: self.origin[k] for k in values}}

    def tuned(self, config: Config) -> Settled[Config]:
        """With the values that a search has found."""
        found = dataclasses.asdict(config)  # type: ignore[call-overload]
        changed = [k for k, v in found.items() if v != getattr(self.config, k)]
        return Settled(config, {**self.origin, **dict.fromkeys(changed, "--tune")})


def named_preset(preset: str | None) -> str | None:
    """The preset that was asked for by its name; none unless one is."""
    return None if preset == NO_PRESET else preset


def preset_names() -> list[str]:
    """Every preset that ships, as `folder/name`."""
    found = (p.relative_to(PRESETS).with_suffix("").as_posix() for p in PRESETS.rglob("*.toml"))
    return sorted(found)


def read_preset(name: str) -> dict[str, Any]:
    """A preset that ships by name, or a TOML file by path.

    It may lie over one that ships, which it names as `base`.
    """
    shipped = PRESETS / f"{name}.toml"
    path = shipped if shipped.is_file() and ".." not in name else Path(name)
    if not path.is_file():
        raise UsageError(f"--preset: no preset {name!r}; there are {', '.join(preset_names())}")
    try:
        found = of_toml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"--preset: {path} is not TOML ({error})") from None
    unknown = [key for key in found if key not in ("base", "mode", "rank", "debias", "network")]
    if unknown:
        raise UsageError(
            f"--preset: {path}: {unknown[0]!r:.60} is not one of base, mode, rank, debias, network"
        )
    base = found.pop("base", None)
    if base is None:
        return found
    if base not in preset_names() or path == PRESETS / f"{base}.toml":
        raise UsageError(
            f"--preset: {path} has base = {base!r:.60}, which does not come with Sebra"
        )
    return _laid_over(found, read_preset(base))


def _laid_over(top: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    """Tables joined, tables in them too; where both have a value that of `top` counts."""
    joined = {**below, **top}
    for key, value in top.items():
        if isinstance(value, Mapping) and isinstance(below.get(key), Mapping):
            joined[key] = _laid_over(value, below[key])
    return joined


def settle(
    kind: type[Config],
    role: str,
    method: str,
    mode: str,
    preset: str | None = None,
    overrides: Sequence[str] = (),
) -> Settled[Config]:
    """The one rule for settings: the defaults of the class, then what its `MODES` says of the mode,
    then the preset, then `--set`.

    In a preset the section of the method goes before that of its role. role: `rank` or `debias`.
    mode: `features`, `finetune` or `scratch`.
    """
    layers = {
        "mode": of_mode(kind, mode),
        f"preset {preset}": {} if preset is None else _of_preset(preset, role, method, mode, kind),
        "--set": parse_overrides(kind, overrides),
    }
    values: dict[str, Any] = {}
    origin = {f.name: "default" for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name, found in layers.items():
        values.update(found)
        origin.update(dict.fromkeys(found, name))
    return Settled(kind(**values), origin)


def _of_preset(preset: str, role: str, method: str, mode: str, kind: Any) -> dict[str, Any]:
    found = read_preset(preset)
    elsewhere = (mode == "features") != (found.get("mode") == "features")
    passed_over = STEP_FIELDS if elsewhere else frozenset[str]()
    of_role, of_method = _section(found, role, method, kind)
    return {k: v for k, v in {**of_role, **of_method}.items() if k not in passed_over}


def for_method(overrides: Sequence[str]) -> tuple[str, ...]:
    """Of `--set key=value` those that are for the method itself."""
    return tuple(o for o in overrides if not o.startswith(_RANKER))


def for_ranker(overrides: Sequence[str]) -> tuple[str, ...]:
    """Of `--set rank.key=value` those that are for the ranker, without `rank.`."""
    return tuple(o.removeprefix(_RANKER) for o in overrides if o.startswith(_RANKER))


def preset_mode(preset: str | None) -> str | None:
    """The mode that a preset is made for, where it names one."""
    found = None if preset is None else read_preset(preset).get("mode")
    if found not in (None, "features", "finetune"):
        raise UsageError(f"preset: mode = {found!r:.40} is not one of features, finetune")
    return found


def ranking_network(preset: str | None, ranker: str) -> tuple[str | None, str | None]:
    """Weights and mode that a preset has for the network of a ranker; None for the trained one's.

    `[network]` holds them for all rankers, `[network.peel]` for one; `same` takes a value back.
    """
    if preset is None:
        return None, None
    network = read_preset(preset).get("network", {})
    if not isinstance(network, Mapping) or not isinstance(network.get(ranker, {}), Mapping):
        raise UsageError(f"preset: network and network.{ranker} must be tables of settings")
    found = {**network, **network.get(ranker, {})}
    weights, mode = (found.get(key) for key in ("rank_weights", "rank_mode"))
    if mode not in (None, "same", "features", "finetune"):
        raise UsageError(f"preset: rank_mode = {mode!r:.40} is not one of features, finetune, same")
    own = [None if value in (None, "same") else str(value) for value in (weights, mode)]
    return own[0], own[1]


def _section(
    preset: Mapping[str, Any], role: str, method: str, kind: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values of a role that the method has fields for, and those of the method's own section."""
    fields = {f.name for f in dataclasses.fields(kind)}
    section = preset.get(role, {})
    if not isinstance(section, Mapping) or not isinstance(section.get(method, {}), Mapping):
        raise UsageError(f"preset: {role} and {role}.{method} must be tables of settings")
    shared = {k: v for k, v in section.items() if not isinstance(v, Mapping)}
    strange = set(shared) - fields and set(shared) - fields - _settings_of(role)
    if strange:
        raise UsageError(f"preset: no method of {role} has a setting {min(strange)!r:.60}")
    shared = {k: v for k, v in shared.items() if k in fields}
    own = section.get(method, {})
    unknown = [k for k in own if k not in fields]
    if unknown:
        raise UsageError(f"preset: {role}.{method} has no setting {unknown[0]!r}")
    hints = typing.get_type_hints(kind)
    for name, value in (*shared.items(), *own.items()):
        if not _fits(value, hints[name]):
            raise UsageError(f"preset: {role} has {name} = {value!r:.40}, not a valid {name}")
    return shared, dict(own)


@cache
def _settings_of(role: str) -> frozenset[str]:
    """The settings of all rankers or of all methods."""
    entries = (RANKERS if role == "rank" else METHODS).values()
    return frozenset(f.name for e in entries for f in dataclasses.fields(e.load().config_class))


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value of a TOML file is of a field's type."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return any(_fits(value, h) for h in typing.get_args(hint))
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) else True


def parse_overrides(kind: Any, overrides: Sequence[str]) -> dict[str, Any]:
    """`key=value` texts to typed values of the dataclass's fields."""
    hints = typing.get_type_hints(kind)
    fields = [f.name for f in dataclasses.fields(kind)]
    out: dict[str, Any] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text}: write key=value")
        if key not in fields:
            known = ", ".join(fields) or "none"
            raise UsageError(f"--set {key}: no such setting; {kind.__name__} has {known}")
        try:
            out[key] = _parse(value, hints[key])
        except ValueError:
            raise UsageError(f"--set {text}: {value!r} is not a valid {key}") from None
    return out


def _parse(value: str, hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        if value.lower() in ("none", ""):
            return None
        hint = next(h for h in typing.get_args(hint) if h is not type(None))
    if hint is bool:
        if value.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise ValueError(value)
        return value.lower() in ("true", "1", "yes")
    if hint is int:
        return int(value)
    if hint is float:
        return float(value)
    return value
