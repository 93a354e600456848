"""Fine-tuning of an encoder as a detector of objects, end to end, and what it finds in the test images.

Order, rate and random numbers follow from the step, so a run resumed from its checkpoint is the run that was never
stopped. With many ranks each takes its share of the same global batch.
"""

import copy
import hashlib
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torchvision.models import ResNet

from imix import distributed
from imix.detection.model import averaged_statistics, faster_rcnn, parameter_groups
from imix.detection.precision import Found, Precision, average_precision
from imix.detection.voc import Sample, Scenes, decoded
from imix.errors import InputError, Interrupted
from imix.progress import Told
from imix.train import checkpoint
from imix.train.device import channels_last
from imix.train.randomness import BEFORE_TRAINING, epoch_order, own_randomness, seed_all
from imix.train.stopping import stopping
from imix.train.watch import Watch

FILE = "detection.pt"


@dataclass(frozen=True)
class Detection:
    """The recipe of MoCo's detection on VOC, which is the paper's.

    The rate rises for `warmup` steps and is divided by ten at each milestone. The shorter side of a training image is
    drawn from `min_sizes`. `regions` of each image train the head. `precise_bn` batches give the statistics of the
    batch normalisation anew before the test; 0 keeps the running ones. `train_difficult` trains on difficult objects
    too, which are ignored in the test in any case.
    """

    iterations: int = 24_000
    batch_size: int = 16
    rate: float = 0.02
    warmup: int = 100
    milestones: tuple[int, ...] = (18_000, 22_000)
    min_sizes: tuple[int, ...] = tuple(range(480, 801, 32))
    test_size: int = 800
    max_size: int = 1333
    momentum: float = 0.9
    weight_decay: float = 1e-4
    regions: int = 512
    precise_bn: int = 200
    train_difficult: bool = False
    eleven_points: bool = True
    seed: int = 0
    checkpoint_minutes: float = 5.0

    def __post_init__(self) -> None:
        for name in ("iterations", "batch_size", "rate", "test_size", "max_size", "regions"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} must be positive; got {getattr(self, name)}")
        if not self.min_sizes or min(self.min_sizes) <= 0:
            raise InputError(f"min_sizes must be positive sizes; got {self.min_sizes}")


def finetune(
    encoder: nn.Sequential,
    train: Scenes,
    test: Scenes,
    protocol: Detection = Detection(),
    device: torch.device = torch.device("cpu"),
    folder: Path | None = None,
    bf16: bool = False,
    progress: bool = True,
) -> Precision:
    """Fine-tune a copy of the encoder on the training images, and measure it on the test images.

    `encoder` is what a run makes: standardisation, then a ResNet. Where `folder` holds a checkpoint of the same
    fine-tuning, it is resumed; the checkpoint is removed when the result is there.
    """
    path = None if folder is None else folder / FILE
    with own_randomness(device):
        tuning = Tuning(encoder, train, protocol, device, bf16)
        made_of = _made_of(encoder, train, test, protocol, bf16)
        begun = 0 if path is None or not path.exists() else tuning.load(path, made_of)
        distributed.wait()  # until all have read it, before one of them writes the next
        told = Told("fine-tuning", protocol.iterations, "steps", ends=True)
        shown = progress and distributed.rank() == 0
        saved, rounds = time.monotonic(), distributed.Rounds()
        with stopping(path is not None) as stop_asked:
            for step, samples in enumerate(tuning.batches(begun, protocol.iterations), begun):
                done, loss = step + 1, tuning.step(step, samples)
                if shown:
                    told(done, f"loss {loss:.4f}  rate {rate_at(protocol, step):.5f}")
                (stop,) = rounds.ask(done, stop_asked())
                if stop:
                    tuning.save(path, done, made_of)
                    distributed.wait()  # none leaves before the checkpoint is written
                    raise Interrupted(f"stopped at step {done} of {protocol.iterations}; it can be resumed from there")
                if done == protocol.iterations or time.monotonic() - saved > 60 * protocol.checkpoint_minutes:
                    tuning.save(path, done, made_of)
                    saved = time.monotonic()
        tuning.renew_statistics()
        found = tuning.find(test, shown)
    result = average_precision(found, [scene.truth for scene in test.scenes], test.classes, protocol.eleven_points)
    distributed.wait()
    if path is not None and distributed.rank() == 0:
        path.unlink(missing_ok=True)
    return result


class Tuning:
    """A detector on a copy of the encoder, its optimiser and its training images."""

    def __init__(
        self, encoder: nn.Sequential, train: Scenes, protocol: Detection, device: torch.device, bf16: bool
    ) -> None:
        self.protocol, self.device, self.bf16 = protocol, device, bf16
        self.world, self.rank = distributed.world_size(), distributed.rank()
        if protocol.batch_size % self.world:
            raise InputError(
                f"a batch of {protocol.batch_size} cannot be shared by {self.world} ranks; choose a multiple"
            )
        counts = [
            scene.truth.difficult.size if protocol.train_difficult else (~scene.truth.difficult).sum()
            for scene in train.scenes
        ]
        self.scenes = [scene for scene, count in zip(train.scenes, counts, strict=True) if count]
        if not self.scenes:
            raise InputError("no training image has an object that counts")
        body = copy.deepcopy(encoder[-1])
        if not isinstance(body, ResNet):
            raise InputError(f"detection needs a ResNet; the encoder is a {type(body).__name__}")
        self.mode = "L" if body.conv1.in_channels == 1 else "RGB"
        seed_all(protocol.seed, BEFORE_TRAINING)
        self.model = faster_rcnn(
            body, len(train.classes), protocol.min_sizes, protocol.max_size, encoder[0], protocol.regions
        )
        channels_last(self.model.to(device)).train().requires_grad_()
        if self.world > 1:
            distributed.SyncBatchNorm.convert(self.model)
        self.parallel = distributed.joined(self.model)
        groups = parameter_groups(self.model, protocol.weight_decay)
        self.optimizer = torch.optim.SGD(groups, lr=protocol.rate, momentum=protocol.momentum)
        advice = f"Try a lower rate (it peaks at {protocol.rate:g}) or a longer warm-up"
        self.watch = Watch(None, advice, protocol.iterations)

    def batches(self, first: int, last: int) -> Iterator[list[Sample]]:
        """This rank's share of the batches of those steps; epochs follow each other without a gap."""
        size, n = self.protocol.batch_size, len(self.scenes)
        share = size // self.world

        def rows() -> Iterator[int]:
            epoch, order = -1, torch.empty(0)
            for step in range(first, last):
                begin = step * size + self.rank * share
                for at in range(begin, begin + share):
                    if at // n != epoch:
                        epoch, order = at // n, epoch_order(self.protocol.seed, at // n, n)
                    yield int(order[at % n])

        samples = decoded((self.scenes[row] for row in rows()), self.mode, self.protocol.train_difficult)
        for _ in range(first, last):
            yield [next(samples) for _ in range(share)]

    def loss(self, network: nn.Module, step: int, samples: list[Sample]) -> Tensor:
        """The sum of the four losses: where objects may be, twice, and what and where they are."""
        seed_all(self.protocol.seed, step, self.rank)
        images, targets = _mirrored(samples, self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            return torch.stack(list(network(images, targets).values())).sum()

    def step(self, step: int, samples: list[Sample]) -> float:
        """Learn from a batch; gives the loss over all ranks."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(self.protocol, step)
        loss = self.loss(self.parallel, step, samples)
        value = float(distributed.mean_over_ranks(loss.detach()))
        self.watch.finite([value], step + 1)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return value

    def renew_statistics(self) -> None:
        """Take the statistics of batch normalisation from the batches that would come next."""
        first, last = self.protocol.iterations, self.protocol.iterations + self.protocol.precise_bn
        if first < last:
            with torch.no_grad(), averaged_statistics(self.model):
                for step, samples in enumerate(self.batches(first, last), first):
                    self.loss(self.model, step, samples)

    def find(self, test: Scenes, progress: bool) -> list[Found]:
        """What the detector finds in each test image; every rank looks at some, and all get everything."""
        own = test.scenes[self.rank :: self.world]
        told = Told("detecting", len(own), "test images", ends=True)
        found = []
        self.model.eval()
        self.model.transform.min_size = (self.protocol.test_size,)
        with torch.no_grad():
            for image, _ in decoded(own, self.mode, False):
                (seen,) = self.model([image.to(self.device).float() / 255])
                boxes, labels, scores = (seen[name].cpu().numpy() for name in ("boxes", "labels", "scores"))
                found.append(Found(boxes, labels - 1, scores))
                if progress:
                    told(len(found))
        if self.world == 1:
            return found
        parts: list[list[Found]] = [[] for _ in range(self.world)]
        dist.all_gather_object(parts, found)
        return [parts[at % self.world][at // self.world] for at in range(len(test))]

    def save(self, path: Path | None, done: int, made_of: dict[str, Any]) -> None:
        """Write a checkpoint, if weights are finite and there is a place for it."""
        self.watch.weights(self.model, done)
        if path is not None and self.rank == 0:
            learned = {"learner": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            checkpoint.save(path, learned | {"epoch": 0, "step": done, "losses": torch.empty(0), "made_of": made_of})

    def load(self, path: Path, made_of: dict[str, Any]) -> int:
        """Go on from a checkpoint of the same fine-tuning; gives the steps that are done."""
        try:
            state = checkpoint.load(path)
        except InputError as error:
            raise InputError(f"{path} is damaged or no checkpoint; remove it to begin anew") from error
        before = state.get("made_of", {})
        different = [name for name in made_of if before.get(name) != made_of[name]]
        if different:
            raise InputError(
                f"{path} is of another fine-tuning ({', '.join(different)} differ); remove it to begin anew"
            )
        self.model.load_state_dict(state["learner"])
        self.optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])


def rate_at(protocol: Detection, step: int) -> float:
    """The learning rate of a step, counted from 0; warm-up begins at a thousandth."""
    rate = protocol.rate * 0.1 ** sum(step >= milestone for milestone in protocol.milestones)
    risen = min(1.0, step / protocol.warmup) if protocol.warmup else 1.0
    return rate * (risen + (1 - risen) / 1000)


def _mirrored(samples: list[Sample], device: torch.device) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Images as floats and their objects, half of them mirrored."""
    images, targets = [], []
    for (image, target), mirrored in zip(samples, (torch.rand(len(samples)) < 0.5).tolist(), strict=True):
        image, boxes = image.to(device, non_blocking=True).float() / 255, target["boxes"]
        if mirrored:
            left, upper, right, lower = boxes.unbind(1)
            width = image.shape[2]
            image, boxes = image.flip(2), torch.stack([width - right, upper, width - left, lower], 1)
        images.append(image)
        targets.append({"boxes": boxes.to(device), "labels": target["labels"].to(device)})
    return images, targets


def _made_of(encoder: nn.Sequential, train: Scenes, test: Scenes, protocol: Detection, bf16: bool) -> dict[str, Any]:
    """What a checkpoint must agree with."""
    weights, images = hashlib.sha256(), hashlib.sha256()
    for name, value in encoder.state_dict().items():
        weights.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    for scene in (*train.scenes, *test.scenes):
        images.update(f"{scene.path.name} {scene.truth.boxes.tolist()} {scene.truth.labels.tolist()}".encode())
    settings = {name: value for name, value in asdict(protocol).items() if name != "checkpoint_minutes"}
    return settings | {
        "encoder": weights.hexdigest(),
        "images": images.hexdigest(),
        "classes": list(train.classes),
        "ranks": distributed.world_size(),
        "bf16": bf16,
    }
