"""Reading images and annotations in the format of PASCAL VOC."""

import numpy as np
import pytest
import torch
from PIL import Image

from imix import InputError
from imix.detection import finetune, read_voc
from imix.detection.voc import VOC_CLASSES, load_samples
from tests.detection.helpers import (
    SHAPES,
    TINY,
    annotation_xml,
    draw_shapes,
    narrow_encoder,
    write_image,
    write_splits,
)


def test_boxes_count_pixels_from_0_and_difficult_objects_are_marked(shapes):
    train, test = read_voc(shapes)
    assert train.class_names == test.class_names == SHAPES
    assert len(train) == len(test) == 12
    for seed, image in enumerate(train.images):
        _, objects = draw_shapes(seed)
        expected = [(box[0] - 1, box[1] - 1, box[2], box[3]) for _, box, _ in objects]
        assert image.path.name == f"{seed:06}.jpg"
        assert np.array_equal(image.ground_truth.boxes, np.array(expected, np.float32))
        assert [SHAPES[label] for label in image.ground_truth.labels] == [name for name, _, _ in objects]
        assert image.ground_truth.difficult.tolist() == [difficult for _, _, difficult in objects]


def test_samples_are_decoded_with_or_without_difficult_objects(shapes):
    images = read_voc(shapes)[0].images[:1]
    pixels, target = next(load_samples(images, "RGB", include_difficult=False))
    assert pixels.dtype == torch.uint8
    assert target["labels"].tolist() == [1]  # 0 is the background
    assert next(load_samples(images, "RGB", include_difficult=True))[1]["labels"].tolist() == [1, 1]
    assert next(load_samples(images, "L", include_difficult=True))[0].shape[0] == 1


@pytest.mark.parametrize("subfolder", ["", "VOCdevkit"])
def test_all_years_are_training_images_and_2007_has_the_test_images(tmp_path, subfolder):
    for year, names in (("VOC2007", "abc"), ("VOC2012", "de")):
        for name in names:
            write_image(
                tmp_path / subfolder / year, name, Image.new("RGB", (20, 20)), [("dog", (2, 3, 10, 12.5), False)]
            )
    write_splits(tmp_path / subfolder / "VOC2007", trainval="ab", test=["c  1"])
    write_splits(tmp_path / subfolder / "VOC2012", trainval="de", val="e")
    train, test = read_voc(tmp_path)
    assert [image.path.stem for image in train.images] == list("abde")
    assert [image.path.stem for image in test.images] == ["c"]
    assert train.class_names == VOC_CLASSES and len(VOC_CLASSES) == 20
    assert train.images[0].ground_truth.boxes.tolist() == [[1, 2, 10, 12.5]]
    assert VOC_CLASSES[test.images[0].ground_truth.labels[0]] == "dog"


def test_only_train_is_used_for_training_if_val_is_the_test_split(tmp_path):
    for name in "abc":
        write_image(tmp_path, name, Image.new("RGB", (20, 20)), [("bolt", (2, 3, 10, 12), False)])
    write_splits(tmp_path, trainval="abc", train="ab", val="c")
    train, test = read_voc(str(tmp_path))
    assert [len(train), len(test)] == [2, 1]
    (tmp_path / "ImageSets/Main/train.txt").unlink()
    with pytest.raises(InputError, match=r"must contain trainval\.txt or train\.txt"):
        read_voc(tmp_path)


def test_boxes_without_area_are_ignored_and_counted(tmp_path, capsys):
    objects = [("x", (5, 5, 4, 9), False), ("x", (5, 5, 5, 5), False)]  # the second one is one pixel
    write_image(tmp_path, "a", Image.new("RGB", (20, 20)), objects)
    write_splits(tmp_path, train="a", test="a")
    train, _ = read_voc(tmp_path)
    assert train.images[0].ground_truth.boxes.tolist() == [[4, 4, 5, 5]]
    assert "ignored 2 boxes without area" in capsys.readouterr().err


ENTITY = '<?xml version="1.0" encoding="{0}"?><!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>'


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: (root / "Annotations/b.xml").unlink(), r"no annotation .*b\.xml"),
        (lambda root: (root / "JPEGImages/b.jpg").unlink(), r"no image .*b\.jpg"),
        (lambda root: (root / "Annotations/b.xml").write_text("<annotation>"), r"b\.xml cannot be read: no element"),
        (
            lambda root: (root / "Annotations/b.xml").write_text(ENTITY.format("utf-8")),
            r"b\.xml cannot be read: document type declarations are not allowed",
        ),
        (
            lambda root: (root / "Annotations/b.xml").write_bytes(ENTITY.format("utf-16").encode("utf-16")),
            r"b\.xml cannot be read: document type declarations are not allowed",
        ),
        (
            lambda root: (root / "Annotations/b.xml").write_text(annotation_xml([("x", (1, 1, "wide", 3), False)])),
            r"b\.xml: bndbox/xmax of an object must be a number; got 'wide'",
        ),
        (
            lambda root: (root / "Annotations/b.xml").write_text(annotation_xml([("x", (1, 1, "nan", 3), False)])),
            r"b\.xml: bndbox/xmax of an object must be a number; got 'nan'",
        ),
        (
            lambda root: (root / "Annotations/b.xml").write_text(annotation_xml([("", (1, 1, 2, 3), False)])),
            r"b\.xml has an object without a name",
        ),
        (
            lambda root: (root / "Annotations/b.xml").write_text(annotation_xml([("stranger", (1, 1, 2, 3), False)])),
            r"b\.xml has an object of the unknown class 'stranger'; the classes of the training images are y",
        ),
        (lambda root: (root / "ImageSets/Main/test.txt").write_text("\n"), r"test\.txt lists no images"),
        (lambda root: (root / "Annotations/a.xml").write_text(annotation_xml([])), "have no objects"),
    ],
)
def test_a_missing_or_invalid_file_is_named_in_the_error(tmp_path, damage, message):
    for name in "ab":
        write_image(tmp_path, name, Image.new("RGB", (20, 20)), [("y", (2, 3, 10, 12), False)])
    write_splits(tmp_path, train="a", test="b")
    read_voc(tmp_path)
    damage(tmp_path)
    with pytest.raises(InputError, match=message):
        read_voc(tmp_path)


def test_folders_in_another_layout_are_rejected(tmp_path):
    with pytest.raises(InputError, match="neither VOC2007, VOCdevkit nor Annotations"):
        read_voc(tmp_path)
    with pytest.raises(InputError, match="no folder"):
        read_voc(tmp_path / "nothing")
    write_image(tmp_path / "VOC2012", "a", Image.new("RGB", (20, 20)), [])
    with pytest.raises(InputError, match=r"trainval\.txt"):
        read_voc(tmp_path)
    write_splits(tmp_path / "VOC2012", trainval="a")
    with pytest.raises(InputError, match="the test images are the test split of VOC2007"):
        read_voc(tmp_path)


def test_an_image_that_cannot_be_decoded_is_named_in_the_error(tmp_path):
    write_image(tmp_path, "a", Image.new("RGB", (20, 20)), [("x", (2, 3, 10, 12), False)])
    (tmp_path / "JPEGImages/a.jpg").write_bytes(b"\xff\xd8nothing")
    write_splits(tmp_path, train="a", test="a")
    train, test = read_voc(tmp_path)
    with pytest.raises(InputError, match=r"a\.jpg cannot be decoded .*; repair or remove it"):
        finetune(narrow_encoder(), train, test, TINY, progress=False)
