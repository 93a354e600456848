"""What an encoder is worth for finding objects: fine-tuned as a Faster R-CNN on images in VOC's format."""

from dataclasses import asdict
from pathlib import Path

from imix import distributed, ranks
from imix.detection.finetune import Detection, finetune
from imix.detection.precision import Precision, average_precision
from imix.detection.voc import read_voc
from imix.errors import InputError
from imix.result import Result
from imix.run import Run, as_run
from imix.train.device import pick_device, uses_bf16

__all__ = ["Detection", "Precision", "average_precision", "detect", "finetune", "read_voc"]


def detect(
    run: "Run | str | Path",
    data_dir: str | Path,
    protocol: Detection = Detection(),
    device: str = "auto",
    progress: bool = True,
) -> Result:
    """Average precision of a run's encoder, fine-tuned end to end as a detector on a folder in VOC's format.

    The run's own encoder stays as it is. A fine-tuning that was stopped goes on from detection.pt in the run folder.
    The result is added to the run folder's evaluations.jsonl. Started by torchrun, ranks share every batch.
    """
    from torchvision.models import ResNet

    run = as_run(run)
    if not isinstance(run.encoder[-1], ResNet):
        name = run.config["architecture"]["encoder"]
        kind = type(run.encoder[-1]).__name__ if name == "custom" else name
        raise InputError(f"detection needs a ResNet (resnet18 to resnet152); the run's encoder is {kind}")
    train, test = read_voc(data_dir)
    joined = ranks.start()
    try:
        where = pick_device(device)
        bf16 = uses_bf16(run.settings, where)
        with ranks.naming_lost_ranks():
            details = asdict(finetune(run.encoder, train, test, protocol, where, run.path, bf16, progress))
        constants = asdict(protocol) | {"train": len(train), "test": len(test), "bf16": bf16}
        result = Result("detection", str(data_dir), details.pop("ap"), constants, details)
        if distributed.rank() == 0:
            run.keep(result)
    finally:
        if joined:
            ranks.stop()
    return result
