"""`sebra export --format card`: a model card that the Hugging Face Hub reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sebra.debiasing.model import DESCRIPTION
from sebra.errors import UsageError
from sebra.runs.folder import RANKING, RunFolder
from sebra.whole import json_of, write_text
from sebra.workflows.verdicts import said_of, verdicts_of
from sebra_tools.tables import markdown

_METRICS = {"average": "accuracy", "id_accuracy": "I.D. accuracy", "worst_group": "worst group"}
_LIMITS = (
    "Patterns are what one ranking found in the training data; shortcuts that it did not find are "
    "not measured here. Accuracies are those of the split named above and hold for data like it."
)


def export_card(folder: RunFolder, out: Path) -> dict[str, Any]:
    """Writes the card of a model run: figures as metadata, and what the model leans on in words."""
    from huggingface_hub import EvalResult, ModelCardData

    if not folder.has(DESCRIPTION):
        raise UsageError(f"--format card: {folder.path} holds no model")
    metrics, config = folder.read_metrics(), folder.read_config()
    evaluation = metrics.get("evaluation", {})
    data, split = str(config.get("data", "")), str(evaluation.get("split", ""))
    results = [
        EvalResult(
            task_type=_task(folder),
            dataset_type=data,
            dataset_name=data,
            dataset_split=split,
            metric_type="accuracy",
            metric_name=f"{name} (%)",
            metric_value=round(float(evaluation[key]), 2),
        )
        for key, name in _METRICS.items()
        if evaluation.get(key) is not None
    ]
    name = folder.path.resolve().name
    about = ModelCardData(
        library_name="sebra", tags=["sebra", "debiasing"], model_name=name, eval_results=results
    )
    text = "\n\n".join(_parts(folder, name, metrics, config, evaluation))
    write_text(out, f"---\n{about.to_yaml()}\n---\n\n{text}\n")
    return {"format": "card", "file": str(out)}


def _task(folder: RunFolder) -> str:
    """As the Hub names it: by what the model takes."""
    described = json_of((folder.path / DESCRIPTION).read_text(encoding="utf-8"))
    kinds = {1: "tabular", 2: "text", 3: "image"}
    return f"{kinds[len(described['networks'][0]['inputs'])]}-classification"


def _parts(
    folder: RunFolder,
    name: str,
    metrics: Mapping[str, Any],
    config: Mapping[str, Any],
    evaluation: Mapping[str, Any],
) -> Iterator[str]:
    yield f"# {name}"
    yield f"Trained by Sebra {config.get('version')}, method `{config.get('method')}`."
    plain = metrics.get("plain", {})
    rows = [
        {"figure": words, "plain training": plain.get(key), "this model": evaluation[key]}
        for key, words in _METRICS.items()
        if evaluation.get(key) is not None
    ]
    if rows:
        split = evaluation.get("split")
        yield f"## Figures\n\nOn the {split} split, in percent.\n\n{markdown(rows)}"
    choice = metrics.get("choice", {}).get("figures", {})
    sides = zip(*(choice.get(k, {}).get("patterns", ()) for k in ("plain", "kept")), strict=False)
    leans = [
        {"samples that": f"{words} pattern {k} ({before[side]['n']})",
         "plain training": before[side]["accuracy"], "this model": after[side]["accuracy"]}
        for k, (before, after) in enumerate(sides, 1)
        for side, words in (("with", "follow"), ("against", "break"))
    ]  # fmt: skip
    if leans:
        yield f"## Does it lean on a pattern?\n\nHeld-out samples.\n\n{markdown(leans)}"
    said = said_of(verdicts_of(folder).patterns) if folder.has(RANKING) else []
    if said:
        yield "## What a person said\n\n" + "\n".join(f"- {line}" for line in said)
    yield f"## Limits\n\n{_LIMITS}"
