"""Average precision of found boxes, by the rules of PASCAL VOC.

A box is found if it overlaps an object of its class enough. The boxes of a class are taken in the order of their
scores over all images; each looks at the object of its image that it overlaps most. If that is more than the threshold
asks for, the box is right the first time and wrong every further time; objects that are difficult neither reward nor
punish. A box is (left, top, right, bottom) in pixels, of area (right - left) * (bottom - top).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

THRESHOLDS = tuple(percent / 100 for percent in range(50, 100, 5))


@dataclass(frozen=True)
class Truth:
    """The objects of an image: boxes (n, 4), numbers of their classes (n,), and which are difficult (n,)."""

    boxes: np.ndarray
    labels: np.ndarray
    difficult: np.ndarray


@dataclass(frozen=True)
class Found:
    """What was found in an image: boxes (n, 4), numbers of their classes (n,), and scores (n,)."""

    boxes: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True)
class Precision:
    """Average precision over classes, in 0..1: over overlaps 0.50:0.05:0.95, at 0.50, at 0.75; and of each class.

    Classes of which the test images have no object that counts are left out.
    """

    ap: float
    ap50: float
    ap75: float
    eleven_points: bool
    per_class: dict[str, dict[str, float]] = field(default_factory=dict)


def average_precision(
    found: Sequence[Found], truth: Sequence[Truth], classes: Sequence[str], eleven_points: bool = True
) -> Precision:
    """Average precision of what was found in images whose objects are known, image by image.

    With `eleven_points`, a class' value is the mean of the best precisions at recalls of at least 0, 0.1, ..., 1, as in
    VOC 2007; without, it is the area under the curve, as in VOC from 2010 on.
    """
    if len(found) != len(truth):
        raise ValueError(f"{len(truth)} images have objects, but boxes were found in {len(found)}")
    values = {}
    for number, name in enumerate(classes):
        objects = sum(int((image.labels[~image.difficult] == number).sum()) for image in truth)
        if objects:
            verdicts = _verdicts(found, truth, number)
            summary = _eleven_points if eleven_points else _area
            values[name] = [summary(verdicts[:, at], objects) for at in range(len(THRESHOLDS))]
    per_class = {
        name: {"ap": float(np.mean(row)), "ap50": row[0], "ap75": row[THRESHOLDS.index(0.75)]}
        for name, row in values.items()
    }
    ap, ap50, ap75 = (
        float(np.mean([row[key] for row in per_class.values()])) if per_class else 0.0 for key in ("ap", "ap50", "ap75")
    )
    return Precision(ap, ap50, ap75, eleven_points, per_class)


def overlaps(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union of each of n boxes with each of m others, (n, m)."""
    boxes, others = np.asarray(boxes, np.float64), np.asarray(others, np.float64)
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    shared = (high - low).clip(min=0).prod(2)
    areas, other_areas = ((part[:, 2:] - part[:, :2]).prod(1) for part in (boxes, others))
    return shared / np.maximum(areas[:, None] + other_areas[None] - shared, 1e-12)


def _verdicts(found: Sequence[Found], truth: Sequence[Truth], number: int) -> np.ndarray:
    """For each box of a class, by falling score, and each threshold: 1 right, -1 wrong, 0 does not count."""
    scores, verdicts = [], []
    for image, objects in zip(found, truth, strict=True):
        own = np.flatnonzero(image.labels == number)
        own = own[np.argsort(-image.scores[own], kind="stable")]
        scores.append(image.scores[own])
        of_class = objects.labels == number
        verdicts.append(_in_image(image.boxes[own], objects.boxes[of_class], objects.difficult[of_class]))
    order = np.argsort(-np.concatenate(scores), kind="stable")
    return np.concatenate(verdicts)[order]


def _in_image(boxes: np.ndarray, objects: np.ndarray, difficult: np.ndarray) -> np.ndarray:
    """The verdicts on the boxes of one image, which come by falling score."""
    verdicts = np.full((len(boxes), len(THRESHOLDS)), -1)
    if len(boxes) and len(objects):
        shared = overlaps(boxes, objects)
        taken = np.zeros((len(objects), len(THRESHOLDS)), bool)
        for row, best in enumerate(shared.argmax(1)):
            enough = shared[row, best] > np.array(THRESHOLDS)
            if difficult[best]:
                verdicts[row, enough] = 0
            else:
                verdicts[row, enough & ~taken[best]] = 1
                taken[best] |= enough
    return verdicts


def _curve(verdicts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many were right up to each box, and the best precision from there on."""
    right, wrong = (verdicts == 1).cumsum(), (verdicts == -1).cumsum()
    precision = right / np.maximum(right + wrong, 1)
    return right, np.maximum.accumulate(precision[::-1])[::-1]


def _eleven_points(verdicts: np.ndarray, objects: int) -> float:
    right, best = _curve(verdicts)
    # In whole numbers, since 0.3 of the recall must not be missed by a rounding.
    first = np.searchsorted(10 * right, objects * np.arange(11))
    return float(np.append(best, 0.0)[first].sum() / 11)


def _area(verdicts: np.ndarray, objects: int) -> float:
    right, best = _curve(verdicts)
    return float((np.diff(right, prepend=0) * best).sum() / objects)
