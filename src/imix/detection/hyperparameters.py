"""Hyperparameters of the detection protocol, and its learning rate schedule."""

from dataclasses import dataclass

from imix.errors import InputError


@dataclass(frozen=True)
class Detection:
    """Hyperparameters of the detection protocol. The defaults are MoCo's for PASCAL VOC, which the paper uses.

    Parameters
    ----------
    iterations, batch_size : int
        Training steps, and images per step over all ranks.
    lr : float
        Peak learning rate. It is divided by 10 at each milestone.
    warmup : int
        Steps over which the learning rate rises linearly, from a thousandth of `lr`.
    milestones : tuple of int
        Steps at which the learning rate is divided by 10.
    min_sizes : tuple of int
        Sizes in pixels that the shorter side of a training image is randomly resized to.
    test_size : int
        Size of the shorter side of a test image.
    max_size : int
        Largest size of the longer side.
    momentum, weight_decay : float
        SGD momentum and weight decay. Batch normalization has no weight decay.
    regions : int
        Regions of each image that the box head is trained on.
    precise_bn : int
        Batches from which the batch norm statistics are computed before the test; 0 keeps the running averages.
    train_difficult : bool
        Train on objects marked as difficult, too. The test always ignores them.
    eleven_points : bool
        Average precision as in VOC 2007; see `imix.detection.average_precision`.
    seed : int
        Seed of the new layers, the batches and the augmentation.
    checkpoint_minutes : float
        Minutes between checkpoints.

    Examples
    --------
    >>> imix.detection.Detection(iterations=6_000, milestones=(4_500, 5_500)).batch_size
    16
    """

    iterations: int = 24_000
    batch_size: int = 16
    lr: float = 0.02
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
        for name in ("iterations", "batch_size", "lr", "test_size", "max_size", "regions"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} must be above 0; got {getattr(self, name)}")
        if not self.min_sizes or min(self.min_sizes) <= 0:
            raise InputError(f"min_sizes must contain only sizes above 0, and at least one; got {self.min_sizes}")


def lr_at(hyperparameters: Detection, step: int) -> float:
    """Return the learning rate of a step, counted from 0."""
    lr = hyperparameters.lr * 0.1 ** sum(step >= milestone for milestone in hyperparameters.milestones)
    progress = min(1.0, step / hyperparameters.warmup) if hyperparameters.warmup else 1.0
    return lr * (progress + (1 - progress) / 1000)
