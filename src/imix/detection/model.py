"""Faster R-CNN on a pretrained ResNet, in the C4 layout: boxes are proposed and pooled on the third stage's features.

The parts are torchvision's; the fourth stage runs on every pooled region, with a batch normalisation after it, as in
the fine-tuning of MoCo. Coordinates are always computed in float32: bfloat16 would round them to 4 pixels.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision.models import ResNet
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor
from torchvision.models.detection.rpn import RPNHead
from torchvision.ops import MultiScaleRoIAlign, roi_align

from imix.batch import laid_out
from imix.data.standardise import statistics
from imix.errors import InputError

SIDES = (32, 64, 128, 256, 512)
RATIOS = (0.5, 1.0, 2.0)
POOLED = 14
BEFORE_REGIONS = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3")


def faster_rcnn(
    body: ResNet,
    classes: int,
    min_size: Sequence[int] = (800,),
    max_size: int = 1333,
    standardise: nn.Module | None = None,
    regions: int = 512,
) -> FasterRCNN:
    """A detector of that many classes whose layers are the body's own, not copies.

    It takes a list of images (C, H, W) in 0..1 and, in training, a list of {"boxes", "labels"}, labels from 1. An image
    is standardised as the encoder was and resized so that its shorter side is drawn from `min_size` (the last of them
    in evaluation), but the longer no more than `max_size`. `regions` of an image train the head.
    """
    channels = body.conv1.in_channels
    if channels not in (1, 3):
        raise InputError(f"objects are found in grey or colour images; the encoder takes {channels} channels")
    mean, deviation = statistics(standardise, channels)
    trunk, head = Trunk(body), Head(body)
    anchors = AnchorGenerator((SIDES,), (RATIOS,))
    return FasterRCNN(
        trunk,
        min_size=tuple(min_size),
        max_size=max_size,
        image_mean=mean,
        image_std=deviation,
        rpn_anchor_generator=anchors,
        rpn_head=Proposer(trunk.out_channels, anchors.num_anchors_per_location()[0]),
        rpn_pre_nms_top_n_train=12_000,
        rpn_pre_nms_top_n_test=6_000,
        rpn_post_nms_top_n_train=2_000,
        rpn_post_nms_top_n_test=1_000,
        box_roi_pool=Pool(trunk.stride),
        box_head=head,
        box_predictor=Predictor(head.width, classes + 1),
        box_batch_size_per_image=regions,
    )


class Trunk(nn.Module):
    """Stem and the first three stages: one map of features, of stride 16 with the standard stem."""

    def __init__(self, body: ResNet) -> None:
        super().__init__()
        self.parts = nn.Sequential(OrderedDict((name, getattr(body, name)) for name in BEFORE_REGIONS))
        self.out_channels = _width(body.layer3)
        pooling = body.maxpool.stride if isinstance(body.maxpool, nn.MaxPool2d) else 1
        self.stride = 4 * body.conv1.stride[0] * pooling

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, F, H / stride, W / stride)."""
        return self.parts(laid_out(images)).float()  # anchors take their type from it


class Proposer(RPNHead):  # type: ignore[misc]
    """The convolutions that say where objects may be; the last ones in float32."""

    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Scores and shifts of every anchor."""
        hidden = [self.conv(features) for features in x]
        with torch.autocast(x[0].device.type, enabled=False):
            exact = [part.float() for part in hidden]
            return [self.cls_logits(part) for part in exact], [self.bbox_pred(part) for part in exact]


class Pool(MultiScaleRoIAlign):  # type: ignore[misc]
    """Regions of one map as squares, aligned with its pixels' middles (torchvision's own is half a pixel off)."""

    def __init__(self, stride: int) -> None:
        super().__init__(["0"], POOLED, 0)
        self.stride = stride

    def forward(self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: list[tuple[int, int]]) -> Tensor:
        """Boxes in pixels of the images -> (regions, F, 14, 14)."""
        return roi_align(x["0"], boxes, POOLED, 1 / self.stride, sampling_ratio=0, aligned=True)


class Head(nn.Module):
    """The fourth stage, a batch normalisation, and the mean over positions."""

    def __init__(self, body: ResNet) -> None:
        super().__init__()
        self.width = _width(body.layer4)
        self.layer4, self.norm = body.layer4, nn.BatchNorm2d(self.width)

    def forward(self, regions: Tensor) -> Tensor:
        """(regions, F, 14, 14) -> (regions, width)."""
        return self.norm(self.layer4(laid_out(regions))).float().mean((2, 3))


class Predictor(FastRCNNPredictor):  # type: ignore[misc]
    """Classes and boxes of regions, in float32; it begins with small weights, as in the recipe."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__(width, classes)
        for layer, deviation in ((self.cls_score, 0.01), (self.bbox_pred, 0.001)):
            nn.init.normal_(layer.weight, std=deviation)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and shifts of every region."""
        with torch.autocast(x.device.type, enabled=False):
            return self.cls_score(x), self.bbox_pred(x)


@contextmanager
def averaged_statistics(model: nn.Module) -> Iterator[None]:
    """Let batch normalisations take the plain mean over the batches they see meanwhile as their statistics."""
    norms = [part for part in model.modules() if isinstance(part, _BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """What an optimiser takes: scales and shifts of batch normalisations are not decayed."""
    norms = [weight for part in model.modules() if isinstance(part, _BatchNorm) for weight in part.parameters()]
    known = {id(weight) for weight in norms}
    others = [weight for weight in model.parameters() if id(weight) not in known]
    return [{"params": others, "weight_decay": weight_decay}, {"params": norms, "weight_decay": 0.0}]


def _width(stage: nn.Sequential) -> int:
    """The channels a stage ends with: those of its last block's last convolution."""
    return [part for part in stage[-1].children() if isinstance(part, nn.Conv2d)][-1].out_channels
