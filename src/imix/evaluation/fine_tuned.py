"""The summary row of the fine-tuned encoder."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

import torch
from torch import Tensor

from imix.data import Data
from imix.evaluation.protocols import with_metrics
from imix.probes.features import EncodedSource
from imix.progress import ProgressLine
from imix.run import Run
from imix.run.result import Result
from imix.settings import FineTuning
from imix.train.finetune import has_small_rows, train_classifier


def measure_fine_tuned(
    run: Run,
    data: Data,
    device: torch.device,
    template: Result,
    seed: int,
    rows: Mapping[int | None, Tensor | None],
    progress: Callable[[int, str], object] | None = None,
) -> list[Result]:
    """Fine-tune the run's encoder as `imix.finetune` does, and return one result for each number of labels.

    `rows` maps each number of labels to D draws of training samples, (D, n). None stands for all training samples.
    `progress` is called with the number of samples used so far, instead of printing lines.
    """
    assert data.test is not None
    assert data.test.labels is not None
    settings = FineTuning(include_inputs=has_small_rows(data), seed=seed)
    template = replace(template, protocol="finetune", hyperparameters=asdict(settings))
    everything = torch.arange(len(data.train))[None]
    draws = {n: everything if drawn is None else drawn.cpu() for n, drawn in rows.items()}
    # Progress counts samples instead of models, because training time grows with the number of samples.
    progress = progress or ProgressLine("fine-tuning", sum(drawn.numel() for drawn in draws.values()), "samples")
    done = 0
    unit, results = "labels" if data.train.is_numeric else "labels per class", []
    for n, drawn in draws.items():
        outputs = []
        for chosen in drawn:
            progress(done, "all labels" if n is None else f"{n} {unit}")
            labeled = data.train if n is None else data.train.take(chosen)
            model, _ = train_classifier(run, data, labeled, settings, device)
            scores = EncodedSource(model, data.test, device).features()
            outputs.append(scores if data.train.is_numeric else scores.softmax(1))
            done += len(chosen)
        result = replace(template, labels_per_class=n)
        results.append(with_metrics(result, torch.stack(outputs), data.test.labels.to(device)))
    return results
