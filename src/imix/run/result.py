"""The result of an evaluation."""

from dataclasses import asdict, dataclass, field
from typing import Any

from imix.errors import InputError, printable
from imix.html_table import html_table
from imix.typed_json import build

METRIC_LABELS = {
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "auroc": "AUROC",
    "log_loss": "log loss",
    "effective_rank": "effective rank",
    "r2": "R²",
    "mae": "MAE",
    "train_accuracy": "training accuracy",
    "paper_accuracy": "with lr chosen on the test set, as in the paper",
    "majority_accuracy": "most frequent class",
}
MAIN_METRICS = {"fed": "distance", "detection": "ap", "no labels": "uniformity"}  # by protocol; accuracy for others
ABSOLUTE = ("log_loss", "r2", "mae", "effective_rank", "uniformity")  # metrics that are not shown in percent


@dataclass(frozen=True)
class Split:
    """The training and test samples of an evaluation.

    Parameters
    ----------
    train, test : int
        Numbers of training and test samples.
    held_out : bool
        Whether the test samples were held out of the training data.
    seed : int or None
        Seed of the held-out samples; None if there are none.
    test_file : str or None
        File or folder of the test samples, if it was given.
    unlabeled : int
        Number of samples that were ignored because they have no label.
    by : {"group", "time"} or None
        Whether whole groups or the latest samples were held out instead of random samples.

    Examples
    --------
    >>> print(imix.evaluation.Split(train=80, test=20, held_out=True, seed=0))
    train 80, test 20 held out with seed 0
    """

    train: int
    test: int
    held_out: bool = False
    seed: int | None = None
    test_file: str | None = None
    unlabeled: int = 0
    by: str | None = None

    def __str__(self) -> str:
        parts = [f"train {self.train}", f"test {self.test}"]
        parts[1] += f" held out{f' by {self.by}' if self.by else ''}" if self.held_out else ""
        parts[1] += f" with seed {self.seed}" if self.held_out and self.by != "time" else ""
        parts += [f"test file {self.test_file}"] if self.test_file else []
        parts += [f"{self.unlabeled} without label ignored"] if self.unlabeled else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Result:
    """The result of an evaluation, together with everything needed to interpret it.

    Parameters
    ----------
    protocol : str
        "linear", "knn", "trees", "pinv", "fed", "detection", "linear-paper"; "finetune" for the fine-tuned
        encoder, "majority" for class frequencies or the mean target, "no labels" for metrics that need none.
    data : str
        Name or path of the data.
    metrics : dict of str to float
        The main metric first ("accuracy"; "r2" for numeric targets, "distance" for fed, "ap" for detection), then
        further ones.
    hyperparameters : dict
        Hyperparameters of the protocol.
    split : Split
        Numbers of training and test samples, and how they were split.
    label : str or None
        The label column of a table.
    representation : {"features", "inputs", "inputs + features", "none"}
        What was evaluated; "none" for class frequencies and the mean target.
    labels_per_class : int or None
        Number of labels of each class in training; None for all.
    draws : int
        Number of random draws of these labels. `metrics` are means over the draws.
    std : dict of str to float
        Standard deviation of each metric over the draws.
    intervals : dict of str to (float, float)
        95% bootstrap interval of each metric, over resamples of the test samples.
    random_crops : str or None
        The augmentation of the linear classifier's training images.
    restandardized : bool
        Whether inputs were standardized with the statistics of the evaluation data.
    confusion : list of list of int
        Confusion matrix of the linear classifier, rows are true classes; empty for many classes.
    classes : list of str
        Class names, in the order of the confusion matrix.
    details : dict
        Further values, for example the chosen learning rate.
    progress : str or None
        How far the training of the encoder was, for example "epoch 12 of 200, step 57 of 1000"; None if finished.

    Examples
    --------
    >>> from imix.evaluation import Result, Split
    >>> metrics = {"accuracy": 0.962, "majority_accuracy": 0.102}
    >>> print(Result("knn", "digits", metrics, {"k": 20}, Split(train=1297, test=500)))
    knn on digits: 96.20% (most frequent class: 10.20%)
      k 20, train 1297, test 500
    """

    protocol: str
    data: str
    metrics: dict[str, float]
    hyperparameters: dict[str, Any]
    split: Split
    label: str | None = None
    representation: str = "features"
    labels_per_class: int | None = None
    draws: int = 1
    std: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    random_crops: str | None = None
    restandardized: bool = False
    confusion: list[list[int]] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    progress: str | None = None

    @property
    def metric(self) -> str:
        """Name of the main metric."""
        return "r2" if "r2" in self.metrics else MAIN_METRICS.get(self.protocol, "accuracy")

    @property
    def value(self) -> float:
        """The main metric: accuracy, average precision or R², up to 1; or a distance."""
        return self.metrics[self.metric]

    @property
    def is_distance(self) -> bool:
        """Whether the main metric is a distance, so that lower is better."""
        return self.metric == "distance"

    @property
    def accuracy(self) -> float:
        """The accuracy; AttributeError if the protocol measures something else."""
        if self.metric != "accuracy":
            raise AttributeError(f"{self.protocol} measures {self.metric}, not accuracy; use `value`")
        return self.value

    @property
    def scaled(self) -> float:
        """The main metric in percent, or for a distance in units of 0.0001."""
        return (1e4 if self.is_distance else 100) * self.value

    @property
    def formatted(self) -> str:
        """The main metric with its unit, for printing."""
        return f"{self.scaled:.2f}e-4" if self.is_distance else format_metric(self.metric, self.value)

    @property
    def conditions(self) -> list[str]:
        """The split, label and options of the evaluation, for printing."""
        parts = [] if self.representation == "features" else [self.representation]
        parts += [f"{self.labels_per_class} labels per class, {self.draws} draws"] if self.labels_per_class else []
        parts += [str(self.split)]
        parts += [f"random crops ({self.random_crops})"] if self.random_crops else []
        parts += ["restandardized"] if self.restandardized else []
        parts += [f"label {self.label}"] if self.label else []
        parts += [self.progress] if self.progress else []
        return parts

    def __str__(self) -> str:
        others = [
            f"{METRIC_LABELS.get(name, name)}: {format_metric(name, value)}"
            for name, value in self.metrics.items()
            if name != self.metric
        ]
        others += [f"lr {self.details['lr']}"] if "lr" in self.details else []
        summary = f"{self.protocol} on {self.data}: {self.formatted}" + (f" ({'; '.join(others)})" if others else "")
        return f"{printable(summary)}\n  {printable(self._circumstances)}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The text, for IPython in a terminal."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """A table of the metrics, for notebooks."""
        rows = []
        for name in sorted(self.metrics, key=lambda name: name != self.metric):  # the main metric first
            is_main = name == self.metric
            row = [
                METRIC_LABELS.get(name, name),
                self.formatted if is_main else format_metric(name, self.metrics[name]),
            ]
            if self.intervals:
                bounds = (format_metric(name, bound) for bound in self.intervals.get(name, ()))
                row.append(" to ".join(bounds))
            rows.append(row)
        rows += [["lr", str(self.details["lr"])]] if "lr" in self.details else []
        header = ["", self.representation, *(["95% interval"] if self.intervals else [])]
        return html_table(rows, header, title=f"{self.protocol} on {self.data}", notes=[self._circumstances])

    @property
    def _circumstances(self) -> str:
        hyperparameters = [f"{name} {value}" for name, value in self.hyperparameters.items()]
        return ", ".join([*hyperparameters, *self.conditions])

    def to_json(self) -> dict[str, Any]:
        """The result as plain values, as they are written to evaluations.jsonl."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Result":
        """Parse a line of evaluations.jsonl; raises InputError if it is not a result."""
        result = build(cls, value)
        if result.metric not in result.metrics:
            raise InputError(f"metrics.{result.metric} is missing")
        if "" in (result.data, result.split.test_file):
            raise InputError("data and split.test_file must not be empty")
        if any(len(interval) != 2 for interval in result.intervals.values()):
            raise InputError("intervals must have two ends")
        return result


def format_metric(metric: str, value: float) -> str:
    """Return a metric with its unit, for printing."""
    return f"{value:.3f}" if metric in ABSOLUTE else f"{100 * value:.2f}%"
