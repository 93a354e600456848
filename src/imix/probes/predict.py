"""`imix.predict`: the classes and probabilities, or the numbers, that a fine-tuned run predicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from imix.encoders import temporarily_on
from imix.errors import InputError
from imix.files import check_output_path
from imix.probes.embed import decode_file_name, read_columns, sample_columns, write_columns
from imix.probes.features import EncodedSource
from imix.probes.run_data import load_for_run
from imix.run import Run, as_run
from imix.run.classifier import Classifier
from imix.runtime.device import pick_device


@dataclass(frozen=True)
class Predictions:
    """The predictions of a fine-tuned run.

    Parameters
    ----------
    labels : ndarray of shape (N,)
        The most probable class, or the predicted number.
    probabilities : ndarray of shape (N, C)
        Probability of each class; (N, 0) for numbers.
    classes : tuple of str
        Names of the classes; empty for numbers.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    classes: tuple[str, ...]


def predict(
    run: "Run | str | Path",
    data: Any,
    out: "str | Path | None" = None,
    *,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    path_column: str | None = None,
    data_dir: str | None = None,
    device: str = "auto",
) -> Predictions:
    """Predict the class or number of every sample, and optionally write the predictions to a file.

    Parameters
    ----------
    run : Run, str or Path
        A run that `imix.finetune` returned, or its folder.
    data : optional
        The data, in the same format as the run's labeled data. Its labels, if any, are only copied to `out`.
    out : str or Path, optional
        A .parquet or .csv file with these columns: those in `keep`; `prediction`; `p_NAME`, the probability of class
        NAME; `file` if the samples are files; `split` if the data has test samples; `label` if it has labels.
    columns, keep, path_column, data_dir, device
        See `imix.embed`.

    Returns
    -------
    Predictions
        Classes and probabilities, or numbers, in the order of the data.

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
        raise InputError("the run was not fine-tuned, so it cannot predict; fine-tune it first")
    classes, tuning = run.config.classes, run.config.fine_tuning
    dataset = load_for_run(run, data, columns=columns, path_column=path_column, data_dir=data_dir, given_rows_only=True)
    kept = (
        read_columns(data, dataset, keep, "prediction|p_.*", to_csv=out is not None and out.suffix == ".csv")
        if keep
        else {}
    )
    torch_device = pick_device(device)
    sources = {"train": dataset.train} | ({"test": dataset.test} if dataset.test is not None else {})
    classifier = Classifier(run.encoder, run.head, bool(tuning.include_inputs))
    with temporarily_on(torch_device, classifier):
        scores = [EncodedSource(classifier, source, torch_device).features() for source in sources.values()]
    outputs = torch.cat(scores).cpu()
    if classes:
        probabilities = outputs.softmax(1).numpy()
        labels = np.array([decode_file_name(name) for name in classes], dtype=object)[probabilities.argmax(1)]
    else:
        probabilities, labels = np.empty((len(outputs), 0), np.float32), outputs[:, 0].numpy()
    if out is not None:
        by_class = {
            f"p_{decode_file_name(name)}": column for name, column in zip(classes, probabilities.T, strict=True)
        }
        write_columns(out, kept | {"prediction": labels} | by_class | sample_columns(dataset, sources))
    return Predictions(labels, probabilities, classes)
