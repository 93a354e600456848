"""`imix.predict`: the classes and probabilities that a fine-tuned run predicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from imix.encoders import temporarily_on
from imix.errors import InputError
from imix.files import check_output_path
from imix.probes.embed import printable, read_columns, sample_columns, write_columns
from imix.probes.features import EncodedSource
from imix.probes.run_data import load_for_run
from imix.run import Run, as_run
from imix.run.classifier import Classifier
from imix.runtime.device import pick_device


@dataclass(frozen=True)
class Predictions:
    """What a fine-tuned run predicts for each sample.

    Parameters
    ----------
    classes : tuple of str
        Names of the classes.
    probabilities : ndarray of shape (N, C)
        Probability of each class.
    """

    classes: tuple[str, ...]
    probabilities: np.ndarray

    @property
    def labels(self) -> np.ndarray:
        """The most probable class of each sample, (N,)."""
        return np.array(self.classes, dtype=object)[self.probabilities.argmax(1)]


def predict(
    run: "Run | str | Path",
    data: Any,
    out: "str | Path | None" = None,
    *,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    data_dir: str | None = None,
    device: str = "auto",
) -> Predictions:
    """Predict the class of every sample, and optionally write classes and probabilities to a file.

    Parameters
    ----------
    run : Run, str or Path
        A run that `imix.finetune` returned, or its folder.
    data : str, Path, array, data frame, Data or Source
        The data, in the same format as the run's labeled data. Labels are ignored.
    out : str or Path, optional
        A .parquet or .csv file with these columns: those in `keep`; `prediction`; `p_` and its name for each class;
        `file` if the samples are files; `split` if the data has test samples; `label` if it has labels.
    columns, keep, data_dir, device
        See `imix.embed`.

    Returns
    -------
    Predictions
        Classes and probabilities, in the order of the data.

    Examples
    --------
    >>> run = imix.pretrain("digits", epochs=1, device="cpu", progress=False)
    >>> tuned = imix.finetune(run, "digits", epochs=1, device="cpu")
    >>> predictions = imix.predict(tuned, "digits", device="cpu")
    >>> predictions.labels.shape, predictions.probabilities.shape
    ((1797,), (1797, 10))
    """
    keep = [keep] if isinstance(keep, str) else list(keep)
    if keep and out is None:
        raise InputError(f"`keep={keep}` needs `out`, a .parquet or .csv file")
    if out is not None:
        out = check_output_path(Path(out), (".parquet", ".csv"), "predictions")
    run = as_run(run)
    if run.head is None or run.config.fine_tuning is None:
        raise InputError("the run predicts nothing, because it was not fine-tuned; fine-tune it first")
    classes, tuning = run.config.classes, run.config.fine_tuning
    dataset = load_for_run(run, data, columns=columns, data_dir=data_dir)
    kept = read_columns(data, dataset, keep, to_csv=out is not None and out.suffix == ".csv") if keep else {}
    torch_device = pick_device(device)
    sources = {"train": dataset.train} | ({"test": dataset.test} if dataset.test is not None else {})
    classifier = Classifier(run.encoder, run.head, bool(tuning.include_inputs))
    with temporarily_on(torch_device, classifier):
        scores = [EncodedSource(classifier, source, torch_device).features() for source in sources.values()]
    probabilities = np.concatenate([part.softmax(1).cpu().numpy() for part in scores])
    predictions = Predictions(classes, probabilities)
    if out is not None:
        names = [f"p_{printable(name)}" for name in classes]
        by_class = dict(zip(names, probabilities.T, strict=True))
        labels = {"prediction": [printable(label) for label in predictions.labels]}
        write_columns(out, kept | labels | by_class | sample_columns(dataset, sources))
    return predictions
