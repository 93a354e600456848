"""The summary of an evaluation: the features compared with the inputs, with all labels and with few."""

import itertools
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from imix.errors import printable
from imix.evaluation.protocols import measure_features
from imix.evaluation.samples import Samples
from imix.html_table import html_table
from imix.probes.knn import KNN
from imix.probes.linear import Linear
from imix.probes.metrics import classification_metrics, regression_metrics
from imix.probes.trees import Trees
from imix.progress import ProgressLine
from imix.run.result import ABSOLUTE, METRIC_LABELS, Result
from imix.train.health import health

BOTH = "inputs + features"
ROWS = (
    *(("inputs", "linear"), ("inputs", "trees"), ("features", "linear"), ("features", "knn")),
    *((BOTH, "linear"), (BOTH, "trees")),
)
FineTuned = Callable[[Mapping[int | None, Tensor | None]], list[Result]]
MIN_TEST_SAMPLES = 200  # fewer test samples give a warning


@dataclass(frozen=True)
class Summary:
    """Results of the features and of the inputs, with all labels and with a few labels per class.

    Parameters
    ----------
    results : list of Result
        One for each representation, protocol and number of labels.
    warnings : list of str
        What limits the numbers, and what to try.

    Examples
    --------
    >>> summary = imix.evaluate(torch.nn.Flatten(), "digits", labels_per_class=(10,), draws=2)
    >>> list(summary.find("features", "linear").metrics)
    ['accuracy', 'balanced_accuracy', 'macro_f1', 'log_loss', 'auroc', 'majority_accuracy']
    """

    results: list[Result]
    warnings: list[str] = field(default_factory=list)

    def find(self, representation: str, protocol: str, labels_per_class: int | None = None) -> Result:
        """Return one of the results; KeyError if it was not measured."""
        wanted = (representation, protocol, labels_per_class)
        for result in self.results:
            if (result.representation, result.protocol, result.labels_per_class) == wanted:
                return result
        raise KeyError(", ".join(map(str, wanted)))

    def __str__(self) -> str:
        title = printable(self._title)
        if self.results[0].protocol == "no labels":
            values = ", ".join(" ".join(row) for row in self._unlabeled_rows())
            return f"{title}\n\n{values}\n\nNote: {self.warnings[0]}"
        tables = [_aligned(table) for table in self._tables()]
        if len(tables) > 1:
            tables[1] += f"\n({self._draws})"
        return "\n\n".join([title, *tables, *(textwrap.fill(f"Note: {warning}", 100) for warning in self.warnings)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The text, for IPython in a terminal."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """The tables, for notebooks."""
        notes = [f"Note: {warning}" for warning in self.warnings]
        if self.results[0].protocol == "no labels":
            return html_table(self._unlabeled_rows(), title=self._title, notes=notes)
        (header, *rows), *by_labels = self._tables()
        if not by_labels:
            return html_table(rows, header, title=self._title, notes=notes)
        first = html_table(rows, header, title=self._title)
        (header, *rows), *_ = by_labels
        return first + html_table(rows, header, notes=[self._draws, *notes])

    @property
    def _title(self) -> str:
        first = replace(self.results[0], representation="features")
        return f"{first.data}: {', '.join(first.conditions)}"

    @property
    def _draws(self) -> str:
        n_draws = max(result.draws for result in self.results)
        return f"mean and standard deviation of {n_draws} random draws of the labels"

    def _unlabeled_rows(self) -> list[list[str]]:
        return [[METRIC_LABELS.get(name, name), f"{value:.2f}"] for name, value in self.results[0].metrics.items()]

    def _tables(self) -> list[list[list[str]]]:
        """All metrics with all labels, and if few labels were measured too, one metric by their number."""
        all_labels = [result for result in self.results if result.labels_per_class is None]
        few_labels = len(all_labels) < len(self.results)
        return [_metrics_table(all_labels), *([_label_table(self.results)] if few_labels else [])]


def summarize(
    representations: Mapping[str, Samples],
    template: Result,
    labels_per_class: Sequence[int],
    draws: int,
    trees: bool,
    seed: int,
    fine_tuned: FineTuned | None,
) -> Summary:
    """Measure every representation with all labels and with few. `template` holds what all results have in common.

    `fine_tuned` measures the fine-tuned encoder. It takes the draws of training samples for each number of labels.
    """
    samples = representations["features"]
    rows = {n: draw_labels(samples, n, draws, seed) for n in labels_per_class}
    counts: dict[int | None, Tensor | None] = {n: drawn for n, drawn in rows.items() if drawn is not None}
    hyperparameters = {"linear": Linear(seed=seed), "knn": KNN(), "trees": Trees(seed=seed)}
    cells = [
        (name, protocol, n)
        for (name, protocol), n in itertools.product(ROWS, [*counts, None])
        if name in representations and (trees or protocol != "trees")
    ]
    results = [_majority(samples, template)]
    progress = ProgressLine("evaluating", len(cells), "classifiers")
    for done, (name, protocol, n) in enumerate(cells):
        progress(done, f"{name}, {protocol}")
        result = replace(template, representation=name, labels_per_class=n)
        results.append(
            measure_features(protocol, representations[name], result, hyperparameters[protocol], counts.get(n))
        )
    if fine_tuned is not None:
        results += fine_tuned({**counts, None: None})
    return Summary(results, _warnings(results, samples, [n for n in labels_per_class if rows[n] is not None]))


def describe_unlabeled(features: Samples, template: Result) -> Summary:
    """Return metrics that need no labels."""
    metrics = health(features.train, features.train)
    del metrics["alignment"]  # needs two views
    result = replace(template, protocol="no labels", metrics=metrics)
    return Summary([result], ["without labels, the features' quality cannot be measured; pass `label` or `labels`"])


def draw_labels(samples: Samples, n: int, draws: int, seed: int) -> Tensor | None:
    """Draw n training samples of each class (all, if a class has fewer), `draws` times: rows (draws, ...).

    For numeric targets, draws n samples. Returns None if that would be every training sample.
    """
    labels = torch.zeros_like(samples.labels) if samples.n_classes == 1 else samples.labels
    classes = [(labels == label).nonzero()[:, 0] for label in labels.unique()]
    if all(len(rows) <= n for rows in classes):
        return None
    generator = torch.Generator().manual_seed(seed)
    return torch.stack(
        [
            torch.cat([rows[torch.randperm(len(rows), generator=generator)[:n]] for rows in classes])
            for _ in range(draws)
        ]
    )


def _majority(samples: Samples, template: Result) -> Result:
    """Return the result of the class frequencies, or of the mean target, as the prediction for every sample."""
    labels, test_labels = samples.labels, samples.test_labels
    if samples.n_classes == 1:
        measured = regression_metrics(labels.mean().expand(len(test_labels)), test_labels)
    else:
        frequencies = torch.bincount(labels, minlength=samples.n_classes) / len(labels)
        measured = classification_metrics(frequencies.expand(len(test_labels), -1), test_labels)
    return replace(
        template, protocol="majority", representation="none", metrics=measured.values, intervals=measured.intervals
    )


def _warnings(results: Sequence[Result], samples: Samples, counts: Sequence[int]) -> list[str]:
    """Return what a reader should know, each with what to try."""
    warnings = []
    split, n_test = results[0].split, len(samples.test_labels)
    if n_test < MIN_TEST_SAMPLES:
        warnings.append(f"only {n_test} test samples, so differences within the intervals mean little; use more")
    if split.unlabeled:
        warnings.append(f"{split.unlabeled:,} samples without a label were ignored")
    if samples.n_classes > 1:
        smallest = int(torch.bincount(samples.labels, minlength=samples.n_classes).min())
        if smallest < KNN().k:
            warnings.append(
                f"the smallest class has {smallest} training samples, fewer than the k={KNN().k} neighbors of kNN; "
                "rely on the linear classifier, or set a smaller k"
            )
        few = [n for n in counts if n > smallest]
        if few:
            warnings.append(f"some classes have fewer than {few[0]} training samples, so all of their samples are used")
    by_name = {(result.representation, result.protocol): result for result in results if not result.labels_per_class}
    inputs, features = by_name.get(("inputs", "linear")), by_name[("features", "linear")]
    if inputs is not None and inputs.value > features.intervals[features.metric][1]:
        warnings.append(
            f"with all labels the features ({features.formatted}) are worse than the inputs ({inputs.formatted}); use "
            "both together, train for more epochs, or try another method or augmentation"
        )
    return warnings


def _row_name(result: Result) -> str:
    if result.protocol == "majority":
        return "mean" if "r2" in result.metrics else "class frequencies"
    if result.protocol == "finetune":
        return "fine-tuned encoder"
    return f"{result.representation}, {'kNN' if result.protocol == 'knn' else result.protocol}"


def _cell(metric: str, value: float) -> str:
    """Format a number without its unit, which is percent for most metrics."""
    return f"{value:.3f}" if metric in ABSOLUTE else f"{100 * value:.1f}"


def _metrics_table(results: Sequence[Result]) -> list[list[str]]:
    """Return all metrics of the results, one line per result, with the interval of the main metric."""
    names = list(results[0].metrics)
    header = [METRIC_LABELS.get(name, name) for name in names]
    header[0] += " (95% interval)"
    lines = [["all labels", *header]]
    for result in results:
        cells = [_cell(name, result.metrics[name]) for name in names]
        low, high = (_cell(names[0], bound) for bound in result.intervals[names[0]])
        lines.append([_row_name(result), f"{cells[0]} ({low} to {high})", *cells[1:]])
    return lines


def _label_table(results: Sequence[Result]) -> list[list[str]]:
    """Return balanced accuracy (R² for numeric targets) by number of labels."""
    metric = "r2" if "r2" in results[0].metrics else "balanced_accuracy"
    counts = list(dict.fromkeys(result.labels_per_class for result in results if result.labels_per_class is not None))
    unit = "labels" if metric == "r2" else "per class"
    lines = [[METRIC_LABELS[metric], *(f"{n} {unit}" for n in counts), "all labels"]]
    cells: dict[str, dict[int | None, str]] = {}
    for result in results:
        text = _cell(metric, result.metrics[metric])
        text += f" ± {_cell(metric, result.std[metric])}" if result.std else ""
        cells.setdefault(_row_name(result), {})[result.labels_per_class] = text
    return lines + [[name, *(row.get(n, "") for n in [*counts, None])] for name, row in cells.items()]


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    """Format cells as a table: the first column is aligned left, the others right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    )
