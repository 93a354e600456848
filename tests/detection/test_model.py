"""The Faster R-CNN that is built around a ResNet."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torchvision.models.resnet import BasicBlock, Bottleneck

from imix import encoders
from imix.detection import Detection
from imix.detection.model import averaged_statistics, faster_rcnn
from tests.detection.helpers import NarrowResNet, narrow_encoder


@pytest.mark.parametrize(
    ("depth", "stem", "widths", "stride"),
    [(18, "small", (256, 512), 4), (34, "standard", (256, 512), 16), (50, "standard", (1024, 2048), 16)],
)
def test_a_detector_uses_the_layers_of_the_resnet(depth, stem, widths, stride):
    resnet = encoders.resnet(depth, stem=stem)
    model = faster_rcnn(resnet, 20)
    assert (model.backbone.out_channels, model.roi_heads.box_head.width) == widths
    assert model.backbone.stride == stride
    with torch.no_grad():
        assert model.backbone(torch.zeros(1, 3, 64, 96)).shape == (1, widths[0], 64 // stride, 96 // stride)
    assert model.rpn.anchor_generator.num_anchors_per_location() == [15]
    assert model.roi_heads.box_predictor.cls_score.out_features == 21
    assert model.roi_heads.box_head.layer4 is resnet.layer4
    parameter_ids = {id(parameter) for parameter in model.parameters()}
    assert all(id(parameter) in parameter_ids for parameter in resnet.parameters())


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_detectors_with_either_kind_of_block_train_and_detect(block):
    model = faster_rcnn(NarrowResNet(block), 3, Detection(min_sizes=(64,), max_size=128, regions=8))
    target = {"boxes": torch.tensor([[5.0, 5.0, 40.0, 40.0]]), "labels": torch.tensor([2])}
    losses = model([torch.rand(3, 50, 70)], [target])
    assert len(losses) == 4 and all(loss.isfinite() for loss in losses.values())
    sum(losses.values()).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    (output,) = model.eval()([torch.rand(3, 50, 70)])
    assert output["boxes"].shape[1:] == (4,)


def test_pooled_regions_are_aligned_with_their_boxes():
    """In a feature map whose values are pixel coordinates, the mean over a region is the center of its box."""
    pool = faster_rcnn(NarrowResNet(), 3).roi_heads.box_roi_pool
    coordinates = (torch.arange(20.0) + 0.5) * 16
    box = torch.tensor([[50.0, 60.0, 162.0, 156.0]])
    for features, center in ((coordinates[None].expand(20, 20), 106.0), (coordinates[:, None].expand(20, 20), 108.0)):
        pooled = pool({"0": features[None, None].contiguous()}, [box], [(320, 320)])
        assert pooled.shape == (1, 1, 14, 14)
        assert pooled.mean().item() == pytest.approx(center, abs=1e-3)


def test_images_are_standardized_like_the_inputs_of_the_encoder():
    encoder = narrow_encoder()
    hyperparameters = Detection(min_sizes=(64,), max_size=64)
    model = faster_rcnn(encoder[1], 3, hyperparameters, encoder[0])
    image = torch.rand(3, 64, 64)
    images, _ = model.transform([image])
    assert_close(images.tensors, encoder[0](image[None]))
    images, _ = faster_rcnn(encoder[1], 3, hyperparameters).transform([image])
    assert_close(images.tensors, image[None])


def test_coordinates_are_computed_in_float32_under_bfloat16_autocast():
    """Anchors are identical, and proposals differ by far less than bfloat16 rounds coordinates of this size."""
    model = faster_rcnn(NarrowResNet(), 3, Detection(min_sizes=(256,), max_size=512)).eval()
    anchors, proposals = [], []
    model.rpn.anchor_generator.register_forward_hook(lambda module, inputs, output: anchors.append(output[0]))
    model.rpn.register_forward_hook(lambda module, inputs, output: proposals.append(output[0][0]))
    for bf16 in (False, True):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            model([torch.rand(3, 256, 512, generator=torch.Generator().manual_seed(0))])
    assert torch.equal(*anchors)
    assert all(boxes.dtype == torch.float32 for boxes in (*anchors, *proposals))
    assert torch.cdist(proposals[1], proposals[0]).amin(1).median() < 0.2


def test_averaged_statistics_are_the_mean_over_batches():
    norm, batches = nn.BatchNorm2d(2), torch.randn(3, 4, 2, 5, 5)
    norm(10 + torch.randn(4, 2, 5, 5))
    with torch.no_grad(), averaged_statistics(norm):
        for batch in batches:
            norm(batch)
    assert_close(norm.running_mean, batches.mean((0, 1, 3, 4)))
    assert_close(norm.running_var, torch.stack([batch.transpose(0, 1).flatten(1).var(1) for batch in batches]).mean(0))
    assert norm.momentum == 0.1
