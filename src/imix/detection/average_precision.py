"""Average precision of detected boxes, as defined by PASCAL VOC.

The boxes of a class are visited in order of descending score, over all images. Each is compared with the object of its
image and class that it overlaps most. If the overlap exceeds the threshold, the first box of an object is correct and
further ones are wrong; boxes of difficult objects are ignored. A box is (left, top, right, bottom) in pixels, with the
area (right - left) * (bottom - top).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torchvision.ops import box_iou

THRESHOLDS = tuple(percent / 100 for percent in range(50, 100, 5))
CORRECT, WRONG, IGNORED = 1, -1, 0


@dataclass(frozen=True)
class GroundTruth:
    """The objects of an image.

    Parameters
    ----------
    boxes : array of shape (n, 4)
        Left, top, right and bottom of each object, in pixels.
    labels : array of shape (n,)
        Class index of each object.
    difficult : bool array of shape (n,)
        Which objects are marked as difficult.
    """

    boxes: np.ndarray
    labels: np.ndarray
    difficult: np.ndarray


@dataclass(frozen=True)
class Detections:
    """The boxes that were detected in an image.

    Parameters
    ----------
    boxes : array of shape (n, 4)
        Left, top, right and bottom of each box, in pixels.
    labels : array of shape (n,)
        Predicted class index of each box.
    scores : array of shape (n,)
        Confidence of each box.
    """

    boxes: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True)
class AveragePrecision:
    """Average precision in [0, 1]. Classes without a non-difficult object are left out.

    Parameters
    ----------
    ap : float
        Mean over classes and over the IoU thresholds 0.50, 0.55, ..., 0.95.
    ap50, ap75 : float
        Mean over classes at the thresholds 0.50 and 0.75.
    eleven_points : bool
        Whether precision is averaged over eleven recall levels (VOC 2007) or over the whole curve.
    per_class : dict
        "ap", "ap50" and "ap75" of each class.
    """

    ap: float
    ap50: float
    ap75: float
    eleven_points: bool
    per_class: dict[str, dict[str, float]] = field(default_factory=dict)


def average_precision(
    detections: Sequence[Detections],
    ground_truth: Sequence[GroundTruth],
    class_names: Sequence[str],
    eleven_points: bool = True,
) -> AveragePrecision:
    """Compute the average precision of detected boxes.

    Parameters
    ----------
    detections : sequence of Detections
        The detected boxes, one entry per image.
    ground_truth : sequence of GroundTruth
        The objects of the same images.
    class_names : sequence of str
        Name of each class index.
    eleven_points : bool
        If True, average the best precision at recalls of at least 0, 0.1, ..., 1, as in VOC 2007. If False, use the
        area under the precision-recall curve, as in VOC from 2010 on.

    Returns
    -------
    AveragePrecision

    Examples
    --------
    >>> import numpy as np
    >>> from imix.detection import Detections, GroundTruth, average_precision
    >>> objects = GroundTruth(np.array([[0, 0, 10, 10]]), np.array([0]), np.array([False]))
    >>> detected = Detections(np.array([[0, 0, 8, 10]]), np.array([0]), np.array([0.9]))
    >>> result = average_precision([detected], [objects], ["dog"])
    >>> result.ap50, result.ap  # an IoU of 0.8 exceeds six of the ten thresholds
    (1.0, 0.6)
    """
    if len(detections) != len(ground_truth):
        raise ValueError(
            f"detections and ground_truth must have one entry per image; got {len(detections)} and {len(ground_truth)}"
        )
    summarize = _eleven_point_average if eleven_points else _area_under_curve
    per_class = {}
    for label, name in enumerate(class_names):
        n_objects = sum(int((image.labels[~image.difficult] == label).sum()) for image in ground_truth)
        if n_objects:
            outcomes = _outcomes(detections, ground_truth, label)
            values = [summarize(outcomes[:, i], n_objects) for i in range(len(THRESHOLDS))]
            ap = float(np.mean(values))
            per_class[name] = {"ap": ap, "ap50": values[0], "ap75": values[THRESHOLDS.index(0.75)]}
    ap, ap50, ap75 = (
        float(np.mean([values[key] for values in per_class.values()])) if per_class else 0.0
        for key in ("ap", "ap50", "ap75")
    )
    return AveragePrecision(ap, ap50, ap75, eleven_points, per_class)


def _outcomes(detections: Sequence[Detections], ground_truth: Sequence[GroundTruth], label: int) -> np.ndarray:
    """Return the outcome of each box of a class, by descending score, at each threshold: (boxes, thresholds)."""
    scores, outcomes = [], []
    for image, objects in zip(detections, ground_truth, strict=True):
        rows = np.flatnonzero(image.labels == label)
        rows = rows[np.argsort(-image.scores[rows], kind="stable")]
        scores.append(image.scores[rows])
        of_class = objects.labels == label
        outcomes.append(_image_outcomes(image.boxes[rows], objects.boxes[of_class], objects.difficult[of_class]))
    order = np.argsort(-np.concatenate(scores), kind="stable")
    return np.concatenate(outcomes)[order]


def _image_outcomes(boxes: np.ndarray, objects: np.ndarray, difficult: np.ndarray) -> np.ndarray:
    """Return the outcomes of the boxes of one image and class, which are sorted by descending score."""
    outcomes = np.full((len(boxes), len(THRESHOLDS)), WRONG)
    if len(boxes) and len(objects):
        iou = box_iou(torch.as_tensor(boxes).double(), torch.as_tensor(objects).double()).numpy()
        detected = np.zeros((len(objects), len(THRESHOLDS)), bool)
        for row, best in enumerate(iou.argmax(1)):
            matches = iou[row, best] > np.array(THRESHOLDS)
            if difficult[best]:
                outcomes[row, matches] = IGNORED
            else:
                outcomes[row, matches & ~detected[best]] = CORRECT
                detected[best] |= matches
    return outcomes


def _precision_curve(outcomes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of correct boxes up to each box, and the best precision from there on."""
    n_correct, n_wrong = (outcomes == CORRECT).cumsum(), (outcomes == WRONG).cumsum()
    precision = n_correct / np.maximum(n_correct + n_wrong, 1)
    return n_correct, np.maximum.accumulate(precision[::-1])[::-1]


def _eleven_point_average(outcomes: np.ndarray, n_objects: int) -> float:
    n_correct, best = _precision_curve(outcomes)
    # Compared as integers: rounding could miss a recall of exactly 0.3.
    first = np.searchsorted(10 * n_correct, n_objects * np.arange(11))
    return float(np.append(best, 0.0)[first].sum() / 11)


def _area_under_curve(outcomes: np.ndarray, n_objects: int) -> float:
    n_correct, best = _precision_curve(outcomes)
    return float((np.diff(n_correct, prepend=0) * best).sum() / n_objects)
