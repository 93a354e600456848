"""Objects: files in VOC's format, average precision against hand and loop, fine-tuning that resumes, and many ranks."""

import json
import os
import signal
from dataclasses import asdict, replace
from datetime import timedelta
from itertools import islice

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from PIL import Image, ImageDraw
from torch import nn
from torch.testing import assert_close
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock, Bottleneck

import imix
from imix import InputError, Interrupted, TrainingError, distributed, encoders, ranks
from imix.data.standardise import Standardise
from imix.detection import Detection, Precision, average_precision, detect, finetune, read_voc
from imix.detection.finetune import FILE, Tuning, _mirrored, rate_at
from imix.detection.model import averaged_statistics, faster_rcnn
from imix.detection.precision import THRESHOLDS, Found, Truth, overlaps
from imix.detection.voc import CLASSES, decoded
from imix.distributed import SyncBatchNorm
from imix.result import Result

CPU = torch.device("cpu")
SHAPES = ("disc", "square", "wedge")
TINY = Detection(
    iterations=4,
    batch_size=4,
    rate=0.02,
    warmup=2,
    milestones=(3,),
    min_sizes=(96, 112),
    test_size=104,
    max_size=160,
    regions=16,
    precise_bn=1,
)


class Narrow(ResNet):
    """A ResNet of four blocks with 8 to 64 channels."""

    def __init__(self, block: type = BasicBlock) -> None:
        super().__init__(block, [1, 1, 1, 1])
        self.inplanes = 8
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        for at, width in enumerate((8, 16, 32, 64)):
            setattr(self, f"layer{at + 1}", self._make_layer(block, width, 1, 1 if at == 0 else 2))
        self.width, self.fc = 64, nn.Identity()


def narrow() -> nn.Sequential:
    torch.manual_seed(1)
    standardise = Standardise(3)
    standardise.mean.fill_(0.4)
    standardise.deviation.fill_(0.25)
    return nn.Sequential(standardise, Narrow())


def annotation(objects) -> str:
    """The XML of VOC; boxes are 1-based with the last pixel inside."""
    parts = [
        f"<object><name>{name}</name><pose>Left</pose><truncated>0</truncated><difficult>{int(hard)}</difficult>"
        f"<bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"
        for name, box, hard in objects
    ]
    return f"<annotation><filename>x.jpg</filename>{''.join(parts)}</annotation>"


def write(folder, name, image, objects) -> None:
    for part in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    image.save(folder / "JPEGImages" / f"{name}.jpg", quality=95)
    (folder / "Annotations" / f"{name}.xml").write_text(annotation(objects))


def scene(seed: int):
    """An image of noise with one or two coloured shapes, and its objects."""
    random = np.random.default_rng(seed)
    width, height = (int(side) for side in random.integers(96, 129, 2))
    image = Image.fromarray(random.integers(90, 130, (height, width, 3), dtype=np.uint8))
    draw, objects = ImageDraw.Draw(image), []
    for at in range(1 + seed % 2):
        kind = (seed + at) % 3
        wide, high = (int(side) for side in random.integers(28, 44, 2))
        left = int(random.integers(2, width // 2 - wide + 4)) + at * width // 2
        top = int(random.integers(2, height - high - 2))
        box = (left, top, min(left + wide, width - 1), top + high)
        if kind == 0:
            draw.ellipse(box, fill=(230, 40, 40))
        elif kind == 1:
            draw.rectangle(box, fill=(40, 230, 40))
        else:
            draw.polygon([(box[0], box[3]), (box[2], box[3]), ((box[0] + box[2]) // 2, box[1])], fill=(40, 40, 240))
        objects.append((SHAPES[kind], tuple(side + 1 for side in box), False))
    if seed % 4 == 0:
        objects.append((SHAPES[seed % 3], (1, 1, 9, 9), True))  # of which nothing is to be seen
    return image, objects


def lists(folder, **parts) -> None:
    for part, names in parts.items():
        (folder / "ImageSets" / "Main" / f"{part}.txt").write_text("".join(f"{name}\n" for name in names))


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Twelve images; they are the test as well."""
    folder = tmp_path_factory.mktemp("shapes")
    for seed in range(12):
        write(folder, f"{seed:06}", *scene(seed))
    names = [f"{seed:06}" for seed in range(12)]
    lists(folder, trainval=names, test=names)
    return folder


# --- files -----------------------------------------------------------------------------------------------------------


def test_boxes_are_read_from_0_with_the_last_pixel_inside_and_difficult_ones_are_marked(shapes):
    train, test = read_voc(shapes)
    assert train.classes == test.classes == SHAPES
    assert len(train) == len(test) == 12
    for seed, found in enumerate(train.scenes):
        _, objects = scene(seed)
        expected = [(box[0] - 1, box[1] - 1, box[2], box[3]) for _, box, _ in objects]
        assert found.path.name == f"{seed:06}.jpg"
        assert np.array_equal(found.truth.boxes, np.array(expected, np.float32))
        assert [SHAPES[label] for label in found.truth.labels] == [name for name, _, _ in objects]
        assert found.truth.difficult.tolist() == [hard for _, _, hard in objects]
    image, target = next(decoded(train.scenes[:1], "RGB", difficult=False))
    assert image.dtype == torch.uint8
    assert target["labels"].tolist() == [1]  # 0 is the background, and the difficult one is left out
    assert next(decoded(train.scenes[:1], "RGB", difficult=True))[1]["labels"].tolist() == [1, 1]
    assert next(decoded(train.scenes[:1], "L", difficult=True))[0].shape[0] == 1


@pytest.mark.parametrize("below", ["", "VOCdevkit"])
def test_years_are_trained_on_together_and_2007_is_the_test(tmp_path, below):
    for year, names in (("VOC2007", "abc"), ("VOC2012", "de")):
        for name in names:
            write(tmp_path / below / year, name, Image.new("RGB", (20, 20)), [("dog", (2, 3, 10, 12.5), False)])
    lists(tmp_path / below / "VOC2007", trainval="ab", test=["c  1"])
    lists(tmp_path / below / "VOC2012", trainval="de", val="e")
    train, test = read_voc(tmp_path)
    assert [found.path.stem for found in train.scenes] == list("abde")
    assert [found.path.stem for found in test.scenes] == ["c"]
    assert train.classes == CLASSES and len(CLASSES) == 20
    assert train.scenes[0].truth.boxes.tolist() == [[1, 2, 10, 12.5]]
    assert CLASSES[test.scenes[0].truth.labels[0]] == "dog"


def test_a_folder_of_ones_own_with_val_is_trained_on_train_alone(tmp_path):
    for name in "abc":
        write(tmp_path, name, Image.new("RGB", (20, 20)), [("bolt", (2, 3, 10, 12), False)])
    lists(tmp_path, trainval="abc", train="ab", val="c")
    train, test = read_voc(str(tmp_path))
    assert [len(train), len(test)] == [2, 1]
    (tmp_path / "ImageSets/Main/train.txt").unlink()
    with pytest.raises(InputError, match=r"must have trainval\.txt or train\.txt"):
        read_voc(tmp_path)


def test_boxes_without_area_are_left_out_and_counted(tmp_path, capsys):
    write(tmp_path, "a", Image.new("RGB", (20, 20)), [("x", (5, 5, 4, 9), False), ("x", (5, 5, 5, 5), False)])
    lists(tmp_path, train="a", test="a")
    train, _ = read_voc(tmp_path)
    assert train.scenes[0].truth.boxes.tolist() == [[4, 4, 5, 5]]  # one pixel
    assert "2 boxes without area were left out" in capsys.readouterr().err


ENTITY = '<?xml version="1.0" encoding="{0}"?><!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>'


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda to: (to / "Annotations/b.xml").unlink(), r"no annotation .*b\.xml"),
        (lambda to: (to / "JPEGImages/b.jpg").unlink(), r"no image .*b\.jpg"),
        (lambda to: (to / "Annotations/b.xml").write_text("<annotation>"), r"b\.xml cannot be read: no element|b\.xml"),
        (
            lambda to: (to / "Annotations/b.xml").write_text(ENTITY.format("utf-8")),
            r"b\.xml .* declares a document type",
        ),
        (
            lambda to: (to / "Annotations/b.xml").write_bytes(ENTITY.format("utf-16").encode("utf-16")),
            r"b\.xml .* declares a document type",
        ),
        (
            lambda to: (to / "Annotations/b.xml").write_text(annotation([("x", (1, 1, "wide", 3), False)])),
            r"b\.xml has an object whose bndbox/xmax is 'wide'",
        ),
        (
            lambda to: (to / "Annotations/b.xml").write_text(annotation([("x", (1, 1, "nan", 3), False)])),
            r"b\.xml has an object whose bndbox/xmax",
        ),
        (
            lambda to: (to / "Annotations/b.xml").write_text(annotation([("", (1, 1, 2, 3), False)])),
            r"b\.xml has an object without a name",
        ),
        (
            lambda to: (to / "Annotations/b.xml").write_text(annotation([("stranger", (1, 1, 2, 3), False)])),
            r"b\.xml has an object 'stranger'; the classes are y",
        ),
        (lambda to: (to / "ImageSets/Main/test.txt").write_text("\n"), r"test\.txt names no images"),
        (lambda to: (to / "Annotations/a.xml").write_text(annotation([])), "have no objects"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(tmp_path, spoil, message):
    for name in "ab":
        write(tmp_path, name, Image.new("RGB", (20, 20)), [("y", (2, 3, 10, 12), False)])
    lists(tmp_path, train="a", test="b")
    read_voc(tmp_path)
    spoil(tmp_path)
    with pytest.raises(InputError, match=message):
        read_voc(tmp_path)


def test_folders_that_are_none_of_vocs_are_refused(tmp_path):
    with pytest.raises(InputError, match="neither VOC2007, VOCdevkit nor Annotations"):
        read_voc(tmp_path)
    with pytest.raises(InputError, match="no folder"):
        read_voc(tmp_path / "nothing")
    write(tmp_path / "VOC2012", "a", Image.new("RGB", (20, 20)), [])
    with pytest.raises(InputError, match=r"trainval\.txt"):
        read_voc(tmp_path)
    lists(tmp_path / "VOC2012", trainval="a")
    with pytest.raises(InputError, match="VOC2007's test part"):
        read_voc(tmp_path)


def test_a_broken_image_is_named(shapes, tmp_path):
    write(tmp_path, "a", Image.new("RGB", (20, 20)), [("x", (2, 3, 10, 12), False)])
    (tmp_path / "JPEGImages/a.jpg").write_bytes(b"\xff\xd8nothing")
    lists(tmp_path, train="a", test="a")
    train, test = read_voc(tmp_path)
    with pytest.raises(InputError, match=r"a\.jpg cannot be decoded"):
        finetune(narrow(), train, test, TINY, progress=False)


# --- average precision -----------------------------------------------------------------------------------------------


def truth(*boxes, difficult=(), labels=None) -> Truth:
    labels = np.zeros(len(boxes), np.int64) if labels is None else np.array(labels)
    hard = np.isin(np.arange(len(boxes)), difficult)
    return Truth(np.array(boxes, np.float32).reshape(-1, 4), labels, hard)


def found(*boxes_and_scores, labels=None) -> Found:
    boxes = np.array([box for box, _ in boxes_and_scores], np.float32).reshape(-1, 4)
    labels = np.zeros(len(boxes), np.int64) if labels is None else np.array(labels)
    return Found(boxes, labels, np.array([score for _, score in boxes_and_scores], np.float32))


def test_average_precision_by_hand():
    """Two objects. By score: right, wrong, right, and one on a difficult object that does not count.

    Precision is 1 up to recall 1/2 and 2/3 up to recall 1: 6 and 5 of the eleven points, or halves of the area.
    """
    images = [truth((0, 0, 10, 10), (50, 50, 60, 60), difficult=[1]), truth((20, 20, 40, 40))]
    boxes = [
        found(((0, 0, 10, 10), 0.9), ((80, 80, 90, 90), 0.8), ((50, 50, 60, 60), 0.95)),
        found(((20, 20, 40, 40), 0.7)),
    ]
    eleven, area = (average_precision(boxes, images, ["x"], eleven_points=way) for way in (True, False))
    assert eleven.ap == pytest.approx((6 + 5 * 2 / 3) / 11)
    assert area.ap == area.ap50 == area.ap75 == pytest.approx((1 + 2 / 3) / 2)


def test_an_overlap_counts_up_to_itself_and_an_object_once():
    """The box covers 8 of 10 columns: overlap 0.8 exactly, which is found at 0.5 to 0.75, six of ten thresholds."""
    image = [truth((0, 0, 10, 10))]
    once = average_precision([found(((0, 0, 8, 10), 0.5))], image, ["x"])
    assert once.ap == pytest.approx(0.6)
    assert once.ap50 == once.ap75 == 1
    twice = average_precision([found(((0, 0, 10, 10), 0.4), ((0, 0, 9, 10), 0.5))], image, ["x"], eleven_points=False)
    assert twice.ap50 == 1  # the better score first; the better box is then wrong, but no recall is left to lose
    assert twice.ap == pytest.approx((8 * 1 + 2 * 0.5) / 10)


def test_the_object_of_the_highest_overlap_is_the_one_that_counts():
    """The second box overlaps both objects enough, the taken one more: it is wrong, and the other stays unfound."""
    images = [truth((0, 0, 10, 10), (0, 4, 10, 14))]
    boxes = [found(((0, 0, 10, 10), 0.9), ((0, 1, 10, 11), 0.8))]
    assert overlaps(boxes[0].boxes, images[0].boxes)[1].min() > 0.5
    assert average_precision(boxes, images, ["x"], eleven_points=False).ap50 == 0.5


def test_three_tenths_of_the_recall_are_three_tenths():
    images = [truth(*[(20 * at, 0, 20 * at + 10, 10) for at in range(10)])]
    boxes = [found(*[((20 * at, 0, 20 * at + 10, 10), 1 - at / 10) for at in range(3)])]
    assert average_precision(boxes, images, ["x"]).ap50 == pytest.approx(4 / 11)
    assert average_precision(boxes, images, ["x"], eleven_points=False).ap50 == pytest.approx(0.3)


def test_classes_are_averaged_and_those_without_objects_left_out():
    images = [truth((0, 0, 10, 10), (0, 0, 9, 9), (5, 5, 9, 9), labels=[0, 1, 2], difficult=[2])]
    boxes = [found(((0, 0, 10, 10), 0.9), ((30, 30, 40, 40), 0.9), labels=[0, 3])]
    result = average_precision(boxes, images, ["a", "b", "c", "d"])
    assert result.per_class == {
        "a": {"ap": 1.0, "ap50": 1.0, "ap75": 1.0},
        "b": {"ap": 0.0, "ap50": 0.0, "ap75": 0.0},
    }
    assert result.ap == result.ap50 == 0.5
    assert average_precision([found()], [truth()], ["a"]) == Precision(0.0, 0.0, 0.0, True)


def by_loops(boxes, images, number, threshold, eleven_points):
    """Average precision of a class at a threshold, as the rules say it, one box after the other."""
    listed = [
        (float(score), image, box)
        for image, each in enumerate(boxes)
        for box, label, score in zip(each.boxes.tolist(), each.labels, each.scores, strict=True)
        if label == number
    ]
    taken, right, wrong, points = set(), 0, 0, []
    total = sum(int(((image.labels == number) & ~image.difficult).sum()) for image in images)
    for _, image, box in sorted(listed, key=lambda each: -each[0]):
        best, best_overlap = None, 0.0
        for at, (other, label) in enumerate(zip(images[image].boxes.tolist(), images[image].labels, strict=True)):
            wide = min(box[2], other[2]) - max(box[0], other[0])
            high = min(box[3], other[3]) - max(box[1], other[1])
            if label != number or wide <= 0 or high <= 0:
                continue
            areas = sum((each[2] - each[0]) * (each[3] - each[1]) for each in (box, other))
            overlap = wide * high / (areas - wide * high)
            if overlap > best_overlap:
                best, best_overlap = at, overlap
        if best_overlap > threshold and images[image].difficult[best]:
            continue
        if best_overlap > threshold and (image, best) not in taken:
            taken.add((image, best))
            right += 1
        else:
            wrong += 1
        points.append((right, right / (right + wrong)))
    if eleven_points:
        return sum(max([p for r, p in points if 10 * r >= at * total], default=0.0) for at in range(11)) / 11
    return sum(max([p for r, p in points if r >= at], default=0.0) for at in range(1, total + 1)) / total


@pytest.mark.parametrize("eleven_points", [True, False])
def test_average_precision_is_that_of_loops(eleven_points):
    random = np.random.default_rng(0)
    images, boxes = [], []
    for _ in range(8):
        n = int(random.integers(0, 6))
        corner = random.integers(0, 60, (n, 2))
        true = np.concatenate([corner, corner + random.integers(10, 30, (n, 2))], 1)
        images.append(Truth(true.astype(np.float32), random.integers(0, 3, n), random.random(n) < 0.2))
        near = np.repeat(true, 3, 0) + random.integers(-6, 7, (3 * n, 4))
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        labels = np.where(random.random(3 * n) < 0.8, np.repeat(images[-1].labels, 3), random.integers(0, 3, 3 * n))
        boxes.append(Found(near.astype(np.float32), labels, random.permutation(3 * n) + random.random(3 * n)))
    result = average_precision(boxes, images, ["a", "b", "c"], eleven_points)
    for number, name in enumerate("abc"):
        values = [by_loops(boxes, images, number, threshold, eleven_points) for threshold in THRESHOLDS]
        assert 0 < values[0] < 1
        assert result.per_class[name] == pytest.approx(
            {"ap": np.mean(values), "ap50": values[0], "ap75": values[5]}, abs=1e-12
        )
    assert result.ap == pytest.approx(np.mean([each["ap"] for each in result.per_class.values()]))


# --- the detector ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("depth", "stem", "widths", "stride"),
    [(18, "small", (256, 512), 4), (34, "standard", (256, 512), 16), (50, "standard", (1024, 2048), 16)],
)
def test_every_resnet_has_its_layers_in_their_places(depth, stem, widths, stride):
    body = encoders.resnet(depth, stem=stem)
    model = faster_rcnn(body, 20)
    assert (model.backbone.out_channels, model.roi_heads.box_head.width) == widths
    assert model.backbone.stride == stride
    with torch.no_grad():
        assert model.backbone(torch.zeros(1, 3, 64, 96)).shape == (1, widths[0], 64 // stride, 96 // stride)
    assert model.rpn.anchor_generator.num_anchors_per_location() == [15]
    assert model.roi_heads.box_predictor.cls_score.out_features == 21
    assert model.roi_heads.box_head.layer4 is body.layer4
    mine = {id(parameter) for parameter in model.parameters()}
    assert all(id(parameter) in mine for parameter in body.parameters())


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_both_kinds_of_block_train_and_find(block):
    model = faster_rcnn(Narrow(block), 3, (64,), 128, regions=8)
    target = {"boxes": torch.tensor([[5.0, 5.0, 40.0, 40.0]]), "labels": torch.tensor([2])}
    losses = model([torch.rand(3, 50, 70)], [target])
    assert len(losses) == 4 and all(loss.isfinite() for loss in losses.values())
    sum(losses.values()).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    (seen,) = model.eval()([torch.rand(3, 50, 70)])
    assert seen["boxes"].shape[1:] == (4,)


def test_pooled_regions_lie_where_their_boxes_do():
    """Of a map whose values are its places in the image, the mean over a region is the middle of its box."""
    pool = faster_rcnn(Narrow(), 3).roi_heads.box_roi_pool
    places = (torch.arange(20.0) + 0.5) * 16
    box = torch.tensor([[50.0, 60.0, 162.0, 156.0]])
    for features, middle in ((places[None].expand(20, 20), 106.0), (places[:, None].expand(20, 20), 108.0)):
        pooled = pool({"0": features[None, None].contiguous()}, [box], [(320, 320)])
        assert pooled.shape == (1, 1, 14, 14)
        assert pooled.mean().item() == pytest.approx(middle, abs=1e-3)


def test_images_are_standardised_as_the_encoder_was():
    encoder = narrow()
    model = faster_rcnn(encoder[1], 3, (64,), 64, encoder[0])
    image = torch.rand(3, 64, 64)
    seen, _ = model.transform([image])
    assert_close(seen.tensors, encoder[0](image[None]))
    seen, _ = faster_rcnn(encoder[1], 3, (64,), 64).transform([image])
    assert_close(seen.tensors, image[None])


def test_coordinates_keep_their_precision_in_bfloat16():
    """Anchors are the same, and what is proposed differs by far less than bfloat16 rounds such places."""
    model = faster_rcnn(Narrow(), 3, (256,), 512).eval()
    anchors, proposed = [], []
    model.rpn.anchor_generator.register_forward_hook(lambda part, given, result: anchors.append(result[0]))
    model.rpn.register_forward_hook(lambda part, given, result: proposed.append(result[0][0]))
    for bf16 in (False, True):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            model([torch.rand(3, 256, 512, generator=torch.Generator().manual_seed(0))])
    assert torch.equal(*anchors)
    assert all(boxes.dtype == torch.float32 for boxes in (*anchors, *proposed))
    assert torch.cdist(proposed[1], proposed[0]).amin(1).median() < 0.2


def test_a_step_in_bfloat16_is_nearly_the_one_in_float32(shapes):
    train, _ = read_voc(shapes)
    losses = []
    for bf16 in (False, True):
        tuning = Tuning(narrow(), train, TINY, CPU, bf16)
        losses.append([tuning.step(step, samples) for step, samples in enumerate(tuning.batches(0, 2))])
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert losses[0] != losses[1]


def test_a_mirrored_image_has_its_objects_mirrored():
    image = torch.zeros(3, 20, 30, dtype=torch.uint8)
    image[:, 4:9, 2:12] = 255
    target = {"boxes": torch.tensor([[2.0, 4.0, 12.0, 9.0]]), "labels": torch.tensor([1])}
    torch.manual_seed(0)
    images, targets = _mirrored([(image, target)] * 16, CPU)
    corners = set()
    for seen, given in zip(images, targets, strict=True):
        left, top, right, bottom = given["boxes"][0].int().tolist()
        assert seen[:, top:bottom, left:right].min() == 1 and seen.sum() == 3 * 50
        corners.add(left)
    assert corners == {2, 18}
    assert target["boxes"].tolist() == [[2, 4, 12, 9]]


def test_the_rate_warms_up_and_falls():
    rates = [rate_at(Detection(), step) for step in (0, 50, 100, 17_999, 18_000, 22_000, 23_999)]
    assert rates == pytest.approx([0.02 / 1000, 0.02 * 0.5005, 0.02, 0.02, 0.002, 0.0002, 0.0002])
    assert rate_at(Detection(warmup=0), 0) == 0.02


def test_protocols_that_make_no_sense_are_refused():
    for settings, message in [
        ({"iterations": 0}, "iterations must be positive; got 0"),
        ({"min_sizes": ()}, "min_sizes must be positive sizes"),
    ]:
        with pytest.raises(InputError, match=message):
            Detection(**settings)


def test_statistics_are_the_mean_over_batches():
    norm, batches = nn.BatchNorm2d(2), torch.randn(3, 4, 2, 5, 5)
    norm(10 + torch.randn(4, 2, 5, 5))
    with torch.no_grad(), averaged_statistics(norm):
        for batch in batches:
            norm(batch)
    assert_close(norm.running_mean, batches.mean((0, 1, 3, 4)))
    assert_close(norm.running_var, torch.stack([batch.transpose(0, 1).flatten(1).var(1) for batch in batches]).mean(0))
    assert norm.momentum == 0.1


# --- fine-tuning -----------------------------------------------------------------------------------------------------


@pytest.fixture
def last_state(monkeypatch):
    """The weights of every detector that came to its test."""
    states, find = [], Tuning.find

    def remembered(self, *arguments):
        states.append({name: value.clone() for name, value in self.model.state_dict().items()})
        return find(self, *arguments)

    monkeypatch.setattr(Tuning, "find", remembered)
    return states


def stop_after(monkeypatch, steps: int, how) -> None:
    step = Tuning.step

    def stopping(self, number, samples):
        if number == steps:
            how()
        return step(self, number, samples)

    monkeypatch.setattr(Tuning, "step", stopping)


@pytest.mark.parametrize("way", ["killed", "asked"])
def test_a_stopped_and_resumed_fine_tuning_is_the_undisturbed_one(shapes, tmp_path, monkeypatch, last_state, way):
    train, test = read_voc(shapes)
    encoder = narrow()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    torch.manual_seed(5)
    expected = finetune(encoder, train, test, TINY, progress=False)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))  # the caller's random numbers are left alone

    def kill():
        raise KeyboardInterrupt

    def ask():
        os.kill(os.getpid(), 15)

    protocol = replace(TINY, checkpoint_minutes=0.0 if way == "killed" else 5.0)
    with monkeypatch.context() as patch:
        stop_after(patch, 2, kill if way == "killed" else ask)
        with pytest.raises(KeyboardInterrupt if way == "killed" else Interrupted):
            finetune(encoder, train, test, protocol, folder=tmp_path, progress=False)
    assert (tmp_path / FILE).exists()
    torch.manual_seed(77)
    assert finetune(encoder, train, test, TINY, folder=tmp_path, progress=False) == expected
    assert not list(tmp_path.iterdir())
    assert len(last_state) == 2
    for name, value in last_state[0].items():
        assert torch.equal(value, last_state[1][name]), name
    assert any(not torch.equal(value, last_state[0][f"backbone.parts.{name}"]) for name, value in body(before))
    for name, value in encoder.state_dict().items():
        assert torch.equal(value, before[name])


def body(state):
    names = {name.removeprefix("1."): value for name, value in state.items() if name.startswith("1.layer1")}
    return names.items()


def test_a_checkpoint_of_another_fine_tuning_is_refused(shapes, tmp_path, monkeypatch):
    train, test = read_voc(shapes)

    def kill():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        stop_after(patch, 1, kill)
        with pytest.raises(KeyboardInterrupt):
            finetune(narrow(), train, test, replace(TINY, checkpoint_minutes=0.0), folder=tmp_path, progress=False)
    with pytest.raises(InputError, match=r"another fine-tuning \(rate differ\); remove it"):
        finetune(narrow(), train, test, replace(TINY, rate=0.1), folder=tmp_path, progress=False)
    other = narrow()
    other[1].conv1.weight.data += 1
    with pytest.raises(InputError, match=r"another fine-tuning \(encoder differ\)"):
        finetune(other, train, test, TINY, folder=tmp_path, progress=False)
    (tmp_path / FILE).write_bytes(b"nothing")
    with pytest.raises(InputError, match="damaged or no checkpoint; remove it"):
        finetune(narrow(), train, test, TINY, folder=tmp_path, progress=False)


def test_a_loss_that_is_not_finite_stops_it(shapes, tmp_path):
    train, test = read_voc(shapes)
    with pytest.raises(TrainingError, match="Try a lower rate"):
        finetune(narrow(), train, test, replace(TINY, rate=1e30, warmup=0), folder=tmp_path, progress=False)
    assert not list(tmp_path.iterdir())


def test_each_epoch_sees_every_image_once_and_batches_go_on_over_its_end(shapes):
    train, _ = read_voc(shapes)
    tuning = Tuning(narrow(), train, replace(TINY, batch_size=5), CPU, False)
    whole = [image for samples in tuning.batches(0, 12) for image, _ in samples]
    originals = [image for image, _ in decoded(train.scenes, "RGB", difficult=False)]

    def number(image):
        return next(at for at, other in enumerate(originals) if torch.equal(image, other))

    seen = [number(image) for image in whole]
    for epoch in range(5):
        assert sorted(seen[12 * epoch : 12 * epoch + 12]) == list(range(12))
    later = [number(image) for samples in islice(tuning.batches(3, 12), 2) for image, _ in samples]
    assert later == seen[15:25]


@pytest.mark.slow
def test_a_small_detector_learns_its_images(shapes, capsys):
    train, test = read_voc(shapes)
    protocol = Detection(
        iterations=160,
        batch_size=4,
        rate=0.05,
        warmup=20,
        milestones=(128,),
        min_sizes=(112, 128),
        test_size=128,
        max_size=240,
        regions=32,
        precise_bn=10,
    )
    result = finetune(narrow(), train, test, protocol)
    assert result.ap50 > 0.9
    assert set(result.per_class) == set(SHAPES)
    told = capsys.readouterr().err
    assert "fine-tuning: 160 of 160 steps  loss" in told and "seconds left" in told
    assert "detecting: 12 of 12 test images" in told


# --- runs ------------------------------------------------------------------------------------------------------------


def test_a_runs_encoder_is_fine_tuned_and_the_result_kept(shapes, tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (16, 3, 32, 32), dtype=np.uint8)
    settings = imix.Settings(epochs=1, batch_size=8, device="cpu")
    run = imix.pretrain(x, settings, encoder=Narrow(), out=tmp_path / "run", progress=False)
    before = {name: value.clone() for name, value in run.encoder.state_dict().items()}
    result = detect(run, shapes, TINY, device="cpu", progress=False)
    assert all(torch.equal(value, before[name]) for name, value in run.encoder.state_dict().items())
    from imix.files import read_lines

    record = read_lines(run.path / "evaluations.jsonl")[-1]
    assert json.loads(json.dumps(asdict(result))) == record
    assert record["protocol"] == "detection" and record["constants"]["iterations"] == 4
    assert not (run.path / FILE).exists()


def test_average_precision_is_told_in_per_cent():
    result = Result("detection", "voc", 0.5, {"iterations": 4}, {"ap50": 0.75, "ap75": 0.25, "per_class": {}})
    assert str(result) == "detection on voc: 50.00 % (ap50 75.00 %, ap75 25.00 %)\n  iterations 4"


def test_no_rank_leaves_before_the_checkpoint_is_written(shapes, tmp_path, monkeypatch):
    train, test = read_voc(shapes)
    written = []
    monkeypatch.setattr(distributed, "wait", lambda: written.append((tmp_path / FILE).exists()))
    stop_after(monkeypatch, 2, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted):
        finetune(narrow(), train, test, TINY, folder=tmp_path, progress=False)
    assert written == [False, True]


def test_a_run_without_a_resnet_is_refused_by_name(shapes):
    run = imix.pretrain("digits", imix.Settings(epochs=1, batch_size=64, device="cpu"), progress=False)
    with pytest.raises(InputError, match=r"detection needs a ResNet .*; the run's encoder is small"):
        detect(run, shapes)


# --- many ranks ------------------------------------------------------------------------------------------------------

POSITIONS = (3, 5)  # that ranks bring


def normalised(x, weight, norm):
    x = x.clone().requires_grad_()
    y = norm(x)
    (y * weight).sum().backward()
    return {"output": y.detach(), "gradient": x.grad, "mean": norm.running_mean, "variance": norm.running_var}


def maps():
    random = torch.Generator().manual_seed(0)
    return [
        (2 * torch.randn(1, 4, side, 2, generator=random) + 1, torch.randn(1, 4, side, 2, generator=random))
        for side in POSITIONS
    ]


def work(rank: int, folder: str, shapes) -> None:
    torch.set_num_threads(1)
    os.environ["WORLD_SIZE"] = "2"
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    train, test = read_voc(shapes)
    states = []
    find = Tuning.find

    def remembered(self, *arguments):
        states.append({name: value.clone() for name, value in self.model.state_dict().items()})
        return find(self, *arguments)

    Tuning.find = remembered
    result = finetune(narrow(), train, test, TINY, progress=False)
    synced = normalised(*maps()[rank], SyncBatchNorm.convert(nn.BatchNorm2d(4)))
    try:
        finetune(narrow(), train, test, replace(TINY, batch_size=3), progress=False)
    except InputError as error:
        refused = str(error)
    left = {"result": result.__dict__, "state": states[0], "synced": synced, "refused": refused}
    torch.save(left, f"{folder}/{rank}.pt")
    ranks.stop()


def test_two_ranks_train_one_detector(shapes, tmp_path):
    mp.spawn(work, (str(tmp_path), shapes), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2))
    assert first["result"] == second["result"]
    for name, value in first["state"].items():
        assert value.isfinite().all()
        assert torch.equal(value, second["state"][name]), name
    assert "cannot be shared by 2 ranks" in first["refused"]

    flat = [torch.cat([part.flatten(2) for part in parts], 2)[..., None] for parts in zip(*maps(), strict=True)]
    alone = normalised(*flat, nn.BatchNorm2d(4))
    for name in ("mean", "variance"):
        for each in (first, second):
            assert_close(each["synced"][name], alone[name])
    for name in ("output", "gradient"):
        parts = [each["synced"][name].flatten(2) for each in (first, second)]
        assert_close(torch.cat(parts, 2)[..., None], alone[name], rtol=1e-4, atol=1e-5)
