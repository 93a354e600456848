"""Evaluates an encoder by fine-tuning it as a Faster R-CNN backbone on images in PASCAL VOC format."""

from dataclasses import asdict
from pathlib import Path

from imix.detection.average_precision import AveragePrecision, Detections, GroundTruth, average_precision
from imix.detection.finetune import finetune
from imix.detection.hyperparameters import Detection
from imix.detection.voc import AnnotatedImage, DetectionDataset, read_voc
from imix.errors import InputError
from imix.run import Run, as_run
from imix.run.result import Result, Split
from imix.runtime import distributed, launch
from imix.runtime.device import pick_device, uses_bf16

__all__ = [
    "AnnotatedImage",
    "AveragePrecision",
    "Detection",
    "DetectionDataset",
    "Detections",
    "GroundTruth",
    "average_precision",
    "detect",
    "finetune",
    "read_voc",
]


def detect(
    run: "Run | str | Path",
    data_dir: str | Path,
    hyperparameters: Detection = Detection(),
    device: str = "auto",
    progress: bool = True,
) -> Result:
    """Fine-tune a copy of a run's encoder as an object detector, and measure its average precision.

    The result is added to evaluations.jsonl in the run folder. Interrupted fine-tuning is resumed from detection.pt
    in the run folder. Under torchrun, each batch is split across the ranks.

    Parameters
    ----------
    run : Run, str or Path
        A run with a ResNet encoder, or its folder.
    data_dir : str or Path
        Folder with training and test images in the format of PASCAL VOC; see `read_voc`.
    hyperparameters : Detection
        Hyperparameters of the fine-tuning. Default: MoCo's for PASCAL VOC, which the paper uses.
    device : str
        "auto", "cpu", "cuda" or "cuda:N".
    progress : bool
        Report progress on stderr.

    Returns
    -------
    Result
        The metrics are "ap", the average precision over IoU thresholds from 0.5 to 0.95, "ap50" and "ap75"; `details`
        has "per_class".

    Examples
    --------
    >>> result = detect("runs/x", "VOCdevkit", Detection(iterations=6_000))  # doctest: +SKIP
    """
    from torchvision.models import ResNet

    run = as_run(run)
    if not isinstance(run.encoder[-1], ResNet):
        architecture = run.config.architecture
        name = type(run.encoder[-1]).__name__ if architecture.is_custom else architecture.encoder
        raise InputError(f"detection needs a ResNet (resnet18 to resnet152); the run's encoder is {name}")
    train, test = read_voc(data_dir)
    with launch.join_ranks():
        torch_device = pick_device(device)
        bf16 = uses_bf16(run.settings, torch_device)
        result = finetune(run.encoder, train, test, hyperparameters, torch_device, run.path, bf16, progress)
        evaluation = Result(
            "detection",
            str(data_dir),
            {"ap": result.ap, "ap50": result.ap50, "ap75": result.ap75},
            asdict(hyperparameters),
            Split(len(train), len(test)),
            details={"per_class": result.per_class, "bf16": bf16},
            progress=run.progress,
        )
        if distributed.rank() == 0:
            run.add_result(evaluation)
    return evaluation
