"""Average precision, compared with cases computed by hand and with a plain loop."""

import numpy as np
import pytest
import torch
from torchvision.ops import box_iou

from imix.detection import AveragePrecision, Detections, GroundTruth, average_precision
from imix.detection.average_precision import THRESHOLDS


def objects(*boxes, difficult=(), labels=None) -> GroundTruth:
    labels = np.zeros(len(boxes), np.int64) if labels is None else np.array(labels)
    is_difficult = np.isin(np.arange(len(boxes)), difficult)
    return GroundTruth(np.array(boxes, np.float32).reshape(-1, 4), labels, is_difficult)


def detected(*boxes_and_scores, labels=None) -> Detections:
    boxes = np.array([box for box, _ in boxes_and_scores], np.float32).reshape(-1, 4)
    labels = np.zeros(len(boxes), np.int64) if labels is None else np.array(labels)
    return Detections(boxes, labels, np.array([score for _, score in boxes_and_scores], np.float32))


def test_average_precision_matches_a_computation_by_hand():
    """Two objects. By falling score: ignored (difficult object), correct, wrong, correct.

    Precision is 1 up to recall 1/2 and 2/3 up to recall 1: 6 and 5 of the eleven points, or halves of the area.
    """
    ground_truth = [objects((0, 0, 10, 10), (50, 50, 60, 60), difficult=[1]), objects((20, 20, 40, 40))]
    detections = [
        detected(((0, 0, 10, 10), 0.9), ((80, 80, 90, 90), 0.8), ((50, 50, 60, 60), 0.95)),
        detected(((20, 20, 40, 40), 0.7)),
    ]
    eleven, area = (
        average_precision(detections, ground_truth, ["x"], eleven_points=eleven_points)
        for eleven_points in (True, False)
    )
    assert eleven.ap == pytest.approx((6 + 5 * 2 / 3) / 11)
    assert area.ap == area.ap50 == area.ap75 == pytest.approx((1 + 2 / 3) / 2)


def test_a_box_is_correct_if_its_iou_exceeds_the_threshold_and_only_once_per_object():
    """The box covers 8 of 10 columns: its IoU is exactly 0.8, which exceeds 0.5 to 0.75, six of ten thresholds."""
    ground_truth = [objects((0, 0, 10, 10))]
    once = average_precision([detected(((0, 0, 8, 10), 0.5))], ground_truth, ["x"])
    assert once.ap == pytest.approx(0.6)
    assert once.ap50 == once.ap75 == 1
    detections = [detected(((0, 0, 10, 10), 0.4), ((0, 0, 9, 10), 0.5))]
    twice = average_precision(detections, ground_truth, ["x"], eleven_points=False)
    assert twice.ap50 == 1  # the second box is wrong, but recall is already 1
    assert twice.ap == pytest.approx((8 * 1 + 2 * 0.5) / 10)


def test_a_box_is_compared_only_with_the_object_it_overlaps_most():
    """The second box overlaps both objects enough, but most the one already detected: it is wrong."""
    ground_truth = [objects((0, 0, 10, 10), (0, 4, 10, 14))]
    detections = [detected(((0, 0, 10, 10), 0.9), ((0, 1, 10, 11), 0.8))]
    boxes = (torch.from_numpy(image.boxes) for image in (detections[0], ground_truth[0]))
    assert box_iou(*boxes)[1].min() > 0.5
    assert average_precision(detections, ground_truth, ["x"], eleven_points=False).ap50 == 0.5


def test_a_recall_of_exactly_three_tenths_is_not_missed_by_rounding():
    ground_truth = [objects(*[(20 * i, 0, 20 * i + 10, 10) for i in range(10)])]
    detections = [detected(*[((20 * i, 0, 20 * i + 10, 10), 1 - i / 10) for i in range(3)])]
    assert average_precision(detections, ground_truth, ["x"]).ap50 == pytest.approx(4 / 11)
    assert average_precision(detections, ground_truth, ["x"], eleven_points=False).ap50 == pytest.approx(0.3)


def test_classes_are_averaged_and_classes_without_objects_are_left_out():
    ground_truth = [objects((0, 0, 10, 10), (0, 0, 9, 9), (5, 5, 9, 9), labels=[0, 1, 2], difficult=[2])]
    detections = [detected(((0, 0, 10, 10), 0.9), ((30, 30, 40, 40), 0.9), labels=[0, 3])]
    result = average_precision(detections, ground_truth, ["a", "b", "c", "d"])
    assert result.per_class == {
        "a": {"ap": 1.0, "ap50": 1.0, "ap75": 1.0},
        "b": {"ap": 0.0, "ap50": 0.0, "ap75": 0.0},
    }
    assert result.ap == result.ap50 == 0.5
    assert average_precision([detected()], [objects()], ["a"]) == AveragePrecision(0.0, 0.0, 0.0, True)


def test_detections_and_ground_truth_of_different_lengths_are_rejected():
    with pytest.raises(ValueError, match="one entry per image; got 1 and 2"):
        average_precision([detected()], [objects(), objects()], ["a"])


def average_precision_loop(detections, ground_truth, class_index, threshold, eleven_points):
    """Average precision of a class at a threshold, one box after the other."""
    candidates = [
        (float(score), image, box)
        for image, boxes in enumerate(detections)
        for box, label, score in zip(boxes.boxes.tolist(), boxes.labels, boxes.scores, strict=True)
        if label == class_index
    ]
    detected_objects, n_correct, n_wrong, points = set(), 0, 0, []
    total = sum(int(((image.labels == class_index) & ~image.difficult).sum()) for image in ground_truth)
    for _, image, box in sorted(candidates, key=lambda candidate: -candidate[0]):
        truth = ground_truth[image]
        best, best_iou = None, 0.0
        for i, (other, label) in enumerate(zip(truth.boxes.tolist(), truth.labels, strict=True)):
            width = min(box[2], other[2]) - max(box[0], other[0])
            height = min(box[3], other[3]) - max(box[1], other[1])
            if label != class_index or width <= 0 or height <= 0:
                continue
            areas = sum((b[2] - b[0]) * (b[3] - b[1]) for b in (box, other))
            iou = width * height / (areas - width * height)
            if iou > best_iou:
                best, best_iou = i, iou
        if best_iou > threshold and truth.difficult[best]:
            continue
        if best_iou > threshold and (image, best) not in detected_objects:
            detected_objects.add((image, best))
            n_correct += 1
        else:
            n_wrong += 1
        points.append((n_correct, n_correct / (n_correct + n_wrong)))
    if eleven_points:
        return sum(max([p for n, p in points if 10 * n >= i * total], default=0.0) for i in range(11)) / 11
    return sum(max([p for n, p in points if n >= i], default=0.0) for i in range(1, total + 1)) / total


@pytest.mark.parametrize("eleven_points", [True, False])
def test_average_precision_matches_a_plain_loop(eleven_points):
    rng = np.random.default_rng(0)
    ground_truth, detections = [], []
    for _ in range(8):
        n = int(rng.integers(0, 6))
        corners = rng.integers(0, 60, (n, 2))
        boxes = np.concatenate([corners, corners + rng.integers(10, 30, (n, 2))], 1)
        ground_truth.append(GroundTruth(boxes.astype(np.float32), rng.integers(0, 3, n), rng.random(n) < 0.2))
        shifted = np.repeat(boxes, 3, 0) + rng.integers(-6, 7, (3 * n, 4))
        shifted[:, 2:] = np.maximum(shifted[:, 2:], shifted[:, :2] + 1)
        true_labels = np.repeat(ground_truth[-1].labels, 3)
        labels = np.where(rng.random(3 * n) < 0.8, true_labels, rng.integers(0, 3, 3 * n))
        scores = rng.permutation(3 * n) + rng.random(3 * n)
        detections.append(Detections(shifted.astype(np.float32), labels, scores))
    result = average_precision(detections, ground_truth, ["a", "b", "c"], eleven_points)
    for i, name in enumerate("abc"):
        values = [
            average_precision_loop(detections, ground_truth, i, threshold, eleven_points) for threshold in THRESHOLDS
        ]
        assert 0 < values[0] < 1
        assert result.per_class[name] == pytest.approx(
            {"ap": np.mean(values), "ap50": values[0], "ap75": values[5]}, abs=1e-12
        )
    assert result.ap == pytest.approx(np.mean([values["ap"] for values in result.per_class.values()]))
