"""Faster R-CNN on a pretrained ResNet, in the C4 layout, built from torchvision's parts.

Regions are proposed and pooled on the features of the third stage. The fourth stage runs on every pooled region,
followed by batch normalization, as in MoCo. Coordinates are always computed in float32, because bfloat16 would round
them to multiples of up to 4 pixels.
"""

from collections import OrderedDict
from collections.abc import Iterator
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

from imix.batch import to_channels_last
from imix.detection.hyperparameters import Detection
from imix.encoders.standardize import mean_and_std
from imix.errors import InputError

ANCHOR_SIZES = (32, 64, 128, 256, 512)
ANCHOR_RATIOS = (0.5, 1.0, 2.0)
POOLED_SIZE = 14
BACKBONE_LAYERS = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3")


def faster_rcnn(
    resnet: ResNet, n_classes: int, hyperparameters: Detection = Detection(), standardize: nn.Module | None = None
) -> FasterRCNN:
    """Build a detector that uses the layers of `resnet` itself, not copies of them.

    It takes a list of images (C, H, W) in [0, 1] and, in training, a list of {"boxes", "labels"} with labels from 1.
    Images are standardized like the inputs of the ResNet. Their shorter side is resized to one of `min_sizes`, chosen
    at random (in evaluation the last one), unless that makes the longer side exceed `max_size`.
    """
    channels = resnet.conv1.in_channels
    if channels not in (1, 3):
        raise InputError(f"detection needs an encoder of gray or color images; it has {channels} input channels")
    mean, std = mean_and_std(standardize, channels)
    backbone, head = Backbone(resnet), BoxHead(resnet)
    anchors = AnchorGenerator((ANCHOR_SIZES,), (ANCHOR_RATIOS,))
    return FasterRCNN(
        backbone,
        min_size=hyperparameters.min_sizes,
        max_size=hyperparameters.max_size,
        image_mean=mean,
        image_std=std,
        rpn_anchor_generator=anchors,
        rpn_head=Float32RPNHead(backbone.out_channels, anchors.num_anchors_per_location()[0]),
        rpn_pre_nms_top_n_train=12_000,
        rpn_pre_nms_top_n_test=6_000,
        rpn_post_nms_top_n_train=2_000,
        rpn_post_nms_top_n_test=1_000,
        box_roi_pool=AlignedRoIPool(backbone.stride),
        box_head=head,
        box_predictor=BoxPredictor(head.width, n_classes + 1),
        box_batch_size_per_image=hyperparameters.regions,
    )


class Backbone(nn.Module):
    """Stem and first three stages of a ResNet; the stride is 16 with the standard stem."""

    def __init__(self, resnet: ResNet) -> None:
        super().__init__()
        self.layers = nn.Sequential(OrderedDict((name, getattr(resnet, name)) for name in BACKBONE_LAYERS))
        self.out_channels = _out_channels(resnet.layer3)
        pool_stride = resnet.maxpool.stride if isinstance(resnet.maxpool, nn.MaxPool2d) else 1
        self.stride = 4 * resnet.conv1.stride[0] * pool_stride

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, F, H / stride, W / stride)."""
        return self.layers(to_channels_last(images)).float()  # anchors have the dtype of the features


class Float32RPNHead(RPNHead):  # type: ignore[misc]
    """Region proposal head whose output layers run in float32."""

    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return objectness and box offsets of every anchor."""
        hidden = [self.conv(features) for features in x]
        with torch.autocast(x[0].device.type, enabled=False):
            hidden = [features.float() for features in hidden]
            return [self.cls_logits(features) for features in hidden], [self.bbox_pred(features) for features in hidden]


class AlignedRoIPool(MultiScaleRoIAlign):  # type: ignore[misc]
    """Pool regions of a single feature map, aligned with pixel centers; torchvision's is half a pixel off."""

    def __init__(self, stride: int) -> None:
        super().__init__(["0"], POOLED_SIZE, 0)
        self.stride = stride

    def forward(self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: list[tuple[int, int]]) -> Tensor:
        """Pool boxes, in pixels of the images -> (regions, F, 14, 14)."""
        return roi_align(x["0"], boxes, POOLED_SIZE, 1 / self.stride, sampling_ratio=0, aligned=True)


class BoxHead(nn.Module):
    """Fourth stage of a ResNet, batch normalization and average pooling."""

    def __init__(self, resnet: ResNet) -> None:
        super().__init__()
        self.width = _out_channels(resnet.layer4)
        self.layer4, self.norm = resnet.layer4, nn.BatchNorm2d(self.width)

    def forward(self, regions: Tensor) -> Tensor:
        """(regions, F, 14, 14) -> (regions, width)."""
        return self.norm(self.layer4(to_channels_last(regions))).float().mean((2, 3))


class BoxPredictor(FastRCNNPredictor):  # type: ignore[misc]
    """Output layers of the box head, in float32, with the small initial weights of detectron2."""

    def __init__(self, width: int, n_classes: int) -> None:
        super().__init__(width, n_classes)
        for layer, std in ((self.cls_score, 0.01), (self.bbox_pred, 0.001)):
            nn.init.normal_(layer.weight, std=std)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return class scores and box offsets of every region."""
        with torch.autocast(x.device.type, enabled=False):
            return self.cls_score(x), self.bbox_pred(x)


@contextmanager
def averaged_statistics(model: nn.Module) -> Iterator[None]:
    """Recompute batch norm statistics as the mean over all batches that the model sees in this context."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
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
    """Return the optimizer's parameter groups: batch normalization has no weight decay."""
    norms = [
        parameter for module in model.modules() if isinstance(module, _BatchNorm) for parameter in module.parameters()
    ]
    norm_ids = {id(parameter) for parameter in norms}
    others = [parameter for parameter in model.parameters() if id(parameter) not in norm_ids]
    return [{"params": others, "weight_decay": weight_decay}, {"params": norms, "weight_decay": 0.0}]


def _out_channels(stage: nn.Sequential) -> int:
    """Return the channels of a stage's output: those of the last convolution of its last block."""
    return [module for module in stage[-1].children() if isinstance(module, nn.Conv2d)][-1].out_channels
