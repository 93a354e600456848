"""The model card of an export, README.md: collects its content; card.md is the template."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from importlib.resources import files
from typing import Any

from imix.data.loading import IN_MEMORY_NAME
from imix.encoders import infer_width
from imix.errors import printable
from imix.run import Run
from imix.run.export.loading import loading_examples
from imix.run.result import METRIC_LABELS, Result, format_metric
from imix.settings import METHODS, RESUME_SAFE_SETTINGS, DataSettings, FineTuning, Settings

ALWAYS_SHOWN = ("mix", "encoder", "epochs", "batch_size", "seed")  # settings in the card, default or not
MAX_LENGTH = 200  # of a name or value in the card
FEW_SAMPLES = 1000
PROTOCOLS = {  # protocol -> description
    "linear": "L2-regularized logistic regression",
    "linear-paper": "linear classifier trained by SGD, as in the paper",
    "knn": "k nearest neighbors by cosine similarity",
    "trees": "gradient boosting or extremely randomized trees",
    "pinv": "linear classifier fitted with the pseudoinverse",
    "fed": "Fréchet distance between the features of training and test samples (lower is better)",
    "finetune": "the encoder fine-tuned with the labels of the training samples",
    "detection": "an object detector fine-tuned from the encoder",
    "majority": "class frequencies, or the mean target, as the prediction for every sample",
    "no labels": "properties of the features that need no labels",
}


def model_card(run: Run, results: Sequence[Result], *, in_timm: bool) -> str:
    """Return the card of a run with these evaluation results, as Markdown with YAML front matter.

    Names from the run may contain anything, so `code` makes them harmless.
    """
    import jinja2

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters["code"] = code
    template = (files("imix.run.export") / "card.md").read_text(encoding="utf-8")
    architecture, config = run.config.architecture, run.config
    is_image = architecture.clip is None and architecture.shape is not None and len(architecture.shape) == 3
    width = infer_width(run.encoder[-1])
    measured = {result.protocol for result in results}
    latest = {_key(result): result for result in results}  # an evaluation may have been repeated
    return environment.from_string(template).render(
        library="timm" if in_timm and is_image else "imix",
        pipeline_tag="image-feature-extraction" if is_image else None,
        supervised=run.settings.supervised or config.fine_tuning is not None,
        data=config.data,
        inputs=describe_inputs(run),
        features=f"{width} features" if width else "features",
        progress=run.progress,
        data_rows=_data_rows(run),
        table=config.data.table,
        settings=_settings(run),
        repeatable=not (run.user_supplied or architecture.is_custom or config.fine_tuning),
        results=[_result_row(result) for result in latest.values()],
        protocols=[f"{code(name)}: {PROTOCOLS[name]}" for name in PROTOCOLS if name in measured],
        limits=_limits(run, results),
        loading=loading_examples(run, in_timm=in_timm),
        versions=", ".join(f"{code(name)} {code(version)}" for name, version in config.versions.items()),
    )


def code(value: Any) -> str:
    r"""Return Markdown that shows a value literally, whatever it contains, also in a table.

    >>> print(code("a|b`<img>"), code("two\nlines"))
    `a\x7cb\x60<img>` `two\nlines`
    """
    text = printable(str(value)).replace("`", r"\x60").replace("|", r"\x7c")
    return f"`{text[:MAX_LENGTH]}{' ...' if len(text) > MAX_LENGTH else ''}`" if text.strip() else "–"


def describe_inputs(run: Run) -> str:
    """Describe the inputs of the encoder, with their shape."""
    architecture, table = run.config.architecture, run.config.data.table
    if architecture.shape is None:
        return "samples with several fields"
    shape = f"(N, {', '.join(map(str, architecture.shape))})"
    if table is not None:
        return f"the rows of a table, encoded as {table.width} numbers,"
    if architecture.clip is not None:
        return f"waveforms {shape} in [-1, 1], with a sample rate of {architecture.clip.sample_rate:,} Hz,"
    kinds = {1: "rows", 2: "sequences", 3: "images"}
    pixels = " of bytes, or of floats in [0, 1]," if len(architecture.shape) == 3 else ""
    return f"{kinds.get(len(architecture.shape), 'arrays')} {shape}{pixels}"


def _data_rows(run: Run) -> list[tuple[str, str]]:
    data, clip = run.config.data, run.config.architecture.clip
    rows = [("name", code(data.name)), ("training samples", f"{data.samples:,}")]
    if data.shape is not None:
        rows.append(("shape of a sample", " × ".join(map(str, data.shape))))
    if data.table is not None:
        kinds = Counter(data.table.kinds.values())
        rows.append(("columns", ", ".join(f"{count} {kind}" for kind, count in kinds.items())))
    if clip is not None:
        rows.append(("preprocessing", f"mel spectrogram in decibels, {clip.n_mels} bands"))
    elif run.config.architecture.standardize:
        rows.append(("preprocessing", "each channel is standardized, with statistics of the training data"))
    return rows + [(code(name), code(value)) for name, value in _changed(data.settings, DataSettings()).items()]


def _settings(run: Run) -> list[tuple[str, str]]:
    """The method, and the settings that differ from their defaults."""
    settings, user_supplied = run.settings, run.user_supplied
    custom = [name for name in user_supplied if hasattr(settings, name)]  # a stored config may have any names
    custom += ["encoder"] if run.config.architecture.is_custom else []
    rows = [] if "method" in custom else [("method", METHODS[settings.method])]
    rows += [(code(name), f"user-supplied, {code(value)}") for name, value in user_supplied.items()]
    rows += [("encoder", "user-supplied")] if run.config.architecture.is_custom else []
    shown = {name: getattr(settings, name) for name in ALWAYS_SHOWN} | _changed(settings, Settings())
    hidden = ("method", *RESUME_SAFE_SETTINGS, *settings.unused_settings(custom), *custom)
    rows += [(code(name), code(value)) for name, value in shown.items() if name not in hidden]
    rows.append(("ranks", str(run.config.ranks)))
    if run.config.fine_tuning is not None:
        changed = _changed(run.config.fine_tuning, FineTuning()).items()
        kind = f"classifier for {len(run.config.classes)} classes" if run.config.classes else "regressor"
        rows.append(("fine-tuned", f"with labels, as a {kind}"))
        rows += [(f"fine-tuning: {code(name)}", code(value)) for name, value in changed]
    return rows


def _changed(settings: Any, defaults: Any) -> dict[str, Any]:
    """The settings that differ from their defaults, by name."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return {name: value for name, value in values.items() if value != getattr(defaults, name)}


def _key(result: Result) -> tuple[str, ...]:
    """What distinguishes a result from others, except for its numbers."""
    return result.data, result.protocol, result.representation, str(result.hyperparameters), *result.conditions


def _result_row(result: Result) -> list[str]:
    """The cells of a row of the results table."""
    name, majority = result.metric, result.metrics.get("majority_accuracy")
    others = [key for key in result.metrics if key not in (name, "majority_accuracy")]
    spread = f" ± {format_metric(name, result.std[name])}" if name in result.std else ""
    interval = [format_metric(name, bound) for bound in result.intervals.get(name, ())]
    conditions = replace(result, representation="features", labels_per_class=None).conditions  # have columns
    options = [f"{key} {value}" for key, value in result.hyperparameters.items()]
    return [
        code(result.data),
        code(result.protocol),
        "–" if result.representation == "none" else code(result.representation),
        f"{result.labels_per_class}, {result.draws} draws" if result.labels_per_class else "all",
        f"{_metric_name(name)} {result.formatted}{spread}",
        " to ".join(interval) or "–",
        "–" if majority is None else format_metric("accuracy", majority),
        ", ".join(f"{_metric_name(other)} {format_metric(other, result.metrics[other])}" for other in others) or "–",
        code("; ".join([*conditions, *options])),
    ]


def _metric_name(name: str) -> str:
    return METRIC_LABELS.get(name, name if name.isidentifier() else code(name))


def _limits(run: Run, results: Sequence[Result]) -> list[str]:
    data = run.config.data
    limits = [
        "The encoder was trained on a single data set. On other data, its features may be worse than the inputs; "
        "`imix evaluate` compares both.",
        "It may reproduce biases of its training data. Fairness, privacy and robustness were not evaluated.",
    ]
    if 0 < data.samples < FEW_SAMPLES:
        limits.append(f"The encoder was trained on only {data.samples} samples.")
    if results:
        limits.append(
            "All results are from a single training run. The intervals reflect the choice of test samples, but not the "
            "variation between training runs."
        )
    if run.progress:
        limits.append(f"The training was not finished: {run.progress}.")
    if run.config.architecture.is_custom:
        limits.append("The network is user-supplied code, which this folder does not contain.")
    if data.name == IN_MEMORY_NAME:
        limits.append("The training data was passed in memory, so its origin is not recorded.")
    return limits
