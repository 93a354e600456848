"""Fine-tunes an encoder end to end as an object detector, and detects objects in the test images.

Sample order, learning rate and random numbers depend only on the seed and the step, so resuming gives the result of an
uninterrupted run. Each global batch is split across the ranks.
"""

import copy
import hashlib
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torchvision.models import ResNet

from imix.detection.average_precision import AveragePrecision, Detections, average_precision
from imix.detection.hyperparameters import Detection, lr_at
from imix.detection.model import averaged_statistics, faster_rcnn, parameter_groups
from imix.detection.voc import DetectionDataset, Sample, load_samples
from imix.errors import InputError, Interrupted
from imix.progress import ProgressLine
from imix.run import checkpoint
from imix.runtime import distributed
from imix.runtime.device import channels_last
from imix.runtime.interrupts import stop_requested
from imix.runtime.rng import BEFORE_TRAINING, epoch_order, isolated_rng, seed_all
from imix.runtime.sync_bn import convert_sync_bn
from imix.train.monitor import TrainingMonitor

CHECKPOINT = "detection.pt"


def finetune(
    encoder: nn.Sequential,
    train: DetectionDataset,
    test: DetectionDataset,
    hyperparameters: Detection = Detection(),
    device: torch.device = torch.device("cpu"),
    folder: Path | None = None,
    bf16: bool = False,
    progress: bool = True,
) -> AveragePrecision:
    """Fine-tune a copy of an encoder as a detector, and measure its average precision on test images.

    Parameters
    ----------
    encoder : nn.Sequential
        Input layer and ResNet, like the encoder of a run.
    train, test : DetectionDataset
        Training and test images, from `read_voc`.
    hyperparameters : Detection
        Hyperparameters. Default: MoCo's for PASCAL VOC.
    device : torch.device
        Where to train.
    folder : Path, optional
        Folder for the checkpoint detection.pt. An existing checkpoint with the same settings is resumed. The
        checkpoint is removed at the end. By default none is written.
    bf16 : bool
        Train under bfloat16 autocast.
    progress : bool
        Report progress on stderr.

    Returns
    -------
    AveragePrecision
    """
    path = None if folder is None else folder / CHECKPOINT
    iterations = hyperparameters.iterations
    with isolated_rng(device):
        tuning = FineTuning(encoder, train, hyperparameters, device, bf16)
        identity = _identity(encoder, train, test, hyperparameters, bf16)
        first_step = 0 if path is None or not path.exists() else tuning.load(path, identity)
        distributed.barrier()  # all ranks have read the checkpoint before rank 0 writes the next one
        progress_line = ProgressLine("fine-tuning", iterations, "steps", always_show_ends=True)
        progress = progress and distributed.rank() == 0
        last_saved, poll = time.monotonic(), distributed.RankPoll()
        with stop_requested(path is not None) as is_stop_requested:
            for step, samples in enumerate(tuning.batches(first_step, iterations), first_step):
                done, loss = step + 1, tuning.step(step, samples)
                if progress:
                    progress_line(done, f"loss {loss:.4f}, lr {lr_at(hyperparameters, step):.5f}")
                (stop,) = poll.any(done, is_stop_requested())
                if stop:
                    tuning.save(path, done, identity)
                    distributed.barrier()  # no rank exits before the checkpoint is written
                    raise Interrupted(f"stopped at step {done} of {iterations}; the fine-tuning can be resumed")
                if done == iterations or time.monotonic() - last_saved > 60 * hyperparameters.checkpoint_minutes:
                    tuning.save(path, done, identity)
                    last_saved = time.monotonic()
        tuning.recompute_statistics()
        detections = tuning.detect(test, progress)
    ground_truth = [image.ground_truth for image in test.images]
    result = average_precision(detections, ground_truth, test.class_names, hyperparameters.eleven_points)
    distributed.barrier()
    if path is not None and distributed.rank() == 0:
        path.unlink(missing_ok=True)
    return result


class FineTuning:
    """A detector on a copy of the encoder, its optimizer and its training images."""

    def __init__(
        self,
        encoder: nn.Sequential,
        train: DetectionDataset,
        hyperparameters: Detection,
        device: torch.device,
        bf16: bool,
    ) -> None:
        self.hyperparameters, self.device, self.bf16 = hyperparameters, device, bf16
        self.world_size, self.rank = distributed.world_size(), distributed.rank()
        if hyperparameters.batch_size % self.world_size:
            raise InputError(
                f"batch_size must be a multiple of the {self.world_size} ranks; got {hyperparameters.batch_size}"
            )
        train_difficult = hyperparameters.train_difficult
        self.images = [image for image in train.images if (train_difficult | ~image.ground_truth.difficult).any()]
        if not self.images:
            raise InputError(
                "no training image has an object to train on; train_difficult=True includes difficult ones"
            )
        resnet = copy.deepcopy(encoder[-1])
        if not isinstance(resnet, ResNet):
            raise InputError(f"detection needs a ResNet; the encoder is a {type(resnet).__name__}")
        self.mode = "L" if resnet.conv1.in_channels == 1 else "RGB"
        seed_all(hyperparameters.seed, BEFORE_TRAINING)
        self.model = faster_rcnn(resnet, len(train.class_names), hyperparameters, encoder[0])
        channels_last(self.model.to(device)).train().requires_grad_()
        if self.world_size > 1:
            convert_sync_bn(self.model, device)
        self.network = distributed.wrap_ddp(self.model)
        groups = parameter_groups(self.model, hyperparameters.weight_decay)
        self.optimizer = torch.optim.SGD(groups, lr=hyperparameters.lr, momentum=hyperparameters.momentum)
        checkpoint.create_optimizer_state(self.optimizer)
        advice = f"Try a lower lr (it peaks at {hyperparameters.lr:g}) or a longer warmup"
        self.monitor = TrainingMonitor(None, advice, hyperparameters.iterations)

    def batches(self, first_step: int, last_step: int) -> Iterator[list[Sample]]:
        """Yield this rank's part of the batch of each step; a batch may continue into the next epoch."""
        batch_size, n = self.hyperparameters.batch_size, len(self.images)
        local_size = batch_size // self.world_size

        def rows() -> Iterator[int]:
            epoch, order = -1, torch.empty(0)
            for step in range(first_step, last_step):
                start = step * batch_size + self.rank * local_size
                for i in range(start, start + local_size):
                    if i // n != epoch:
                        epoch, order = i // n, epoch_order(self.hyperparameters.seed, i // n, n)
                    yield int(order[i % n])

        images = (self.images[row] for row in rows())
        samples = load_samples(images, self.mode, self.hyperparameters.train_difficult)
        for _ in range(first_step, last_step):
            yield [next(samples) for _ in range(local_size)]

    def loss(self, network: nn.Module, step: int, samples: list[Sample]) -> Tensor:
        """Return the sum of the four losses: objectness and boxes of proposals, classes and boxes of regions."""
        seed_all(self.hyperparameters.seed, step, self.rank)
        images, targets = _random_flip(samples, self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            return torch.stack(list(network(images, targets).values())).sum()

    def step(self, step: int, samples: list[Sample]) -> float:
        """Train on a batch and return its loss over all ranks."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr_at(self.hyperparameters, step)
        loss = self.loss(self.network, step, samples)
        value = float(distributed.mean_over_ranks(loss.detach()))
        self.monitor.check_losses([value], step + 1)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return value

    def recompute_statistics(self) -> None:
        """Recompute the batch norm statistics from the batches that would come next."""
        first_step = self.hyperparameters.iterations
        last_step = first_step + self.hyperparameters.precise_bn
        if first_step < last_step:
            with torch.no_grad(), averaged_statistics(self.model):
                for step, samples in enumerate(self.batches(first_step, last_step), first_step):
                    self.loss(self.model, step, samples)

    def detect(self, test: DetectionDataset, progress: bool) -> list[Detections]:
        """Return the detections in each test image. Ranks split the images; each returns all detections."""
        images = test.images[self.rank :: self.world_size]
        progress_line = ProgressLine("detecting", len(images), "test images", always_show_ends=True)
        detections = []
        self.model.eval()
        self.model.transform.min_size = (self.hyperparameters.test_size,)
        with torch.no_grad():
            for image, _ in load_samples(images, self.mode, include_difficult=False):
                (output,) = self.model([image.to(self.device).float() / 255])
                boxes, labels, scores = (output[name].cpu().numpy() for name in ("boxes", "labels", "scores"))
                detections.append(Detections(boxes, labels - 1, scores))
                if progress:
                    progress_line(len(detections))
        if self.world_size == 1:
            return detections
        by_rank: list[list[Detections]] = [[] for _ in range(self.world_size)]
        dist.all_gather_object(by_rank, detections)
        return [by_rank[i % self.world_size][i // self.world_size] for i in range(len(test))]

    def save(self, path: Path | None, done: int, identity: dict[str, Any]) -> None:
        """Check that the weights are finite and, if there is a path, write a checkpoint."""
        self.monitor.check_weights(self.model, done)
        if path is not None and self.rank == 0:
            position = {"epoch": 0, "step": done, "losses": torch.empty(0), "identity": identity}
            checkpoint.save(path, checkpoint.snapshot(self.model, self.optimizer) | position)

    def load(self, path: Path, identity: dict[str, Any]) -> int:
        """Load a checkpoint of the same fine-tuning and return the number of steps done."""
        try:
            state = checkpoint.load(path)
            saved: Any = state.get("identity")
            checkpoint.check_names("identity", saved, identity)
            different = [name for name in identity if not _is_same(saved[name], identity[name])]
        except InputError as error:
            raise InputError(f"{path} is damaged or not a checkpoint; remove it to start over") from error
        if different:
            raise InputError(
                f"{path} was written with other settings (different: {', '.join(different)}); remove it to start over"
            )
        if state["epoch"] != 0 or not 0 <= state["step"] <= self.hyperparameters.iterations:
            raise InputError(f"{path} has an epoch or step out of range; remove it to start over")
        try:
            checkpoint.restore(state, self.model, self.optimizer)
        except InputError as error:
            raise InputError(f"{error}; remove {path} to start over") from error
        return int(state["step"])


def _random_flip(samples: list[Sample], device: torch.device) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Return images as floats with their targets, each flipped horizontally with probability 1/2."""
    images, targets = [], []
    for (image, target), flip in zip(samples, (torch.rand(len(samples)) < 0.5).tolist(), strict=True):
        image, boxes = image.to(device, non_blocking=True).float() / 255, target["boxes"]
        if flip:
            left, top, right, bottom = boxes.unbind(1)
            width = image.shape[2]
            image, boxes = image.flip(2), torch.stack([width - right, top, width - left, bottom], 1)
        images.append(image)
        targets.append({"boxes": boxes.to(device), "labels": target["labels"].to(device)})
    return images, targets


def _is_same(saved: Any, expected: Any) -> bool:
    """Whether two values or lists have the same types and values; a hostile value is not compared or printed."""
    if type(saved) is not type(expected):
        return False
    if isinstance(expected, list | tuple):
        return len(saved) == len(expected) and all(map(_is_same, saved, expected))
    return bool(saved == expected)


def _identity(
    encoder: nn.Sequential, train: DetectionDataset, test: DetectionDataset, hyperparameters: Detection, bf16: bool
) -> dict[str, Any]:
    """Return everything that must be the same for a checkpoint to be resumed."""
    weights, images = hashlib.sha256(), hashlib.sha256()
    for name, value in encoder.state_dict().items():
        weights.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    for image in (*train.images, *test.images):
        objects = image.ground_truth
        images.update(f"{image.path.name} {objects.boxes.tolist()} {objects.labels.tolist()}".encode())
    settings = {name: value for name, value in asdict(hyperparameters).items() if name != "checkpoint_minutes"}
    return settings | {
        "encoder": weights.hexdigest(),
        "images": images.hexdigest(),
        "classes": list(train.class_names),
        "ranks": distributed.world_size(),
        "bf16": bf16,
    }
