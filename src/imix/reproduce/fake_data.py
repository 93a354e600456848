"""Tiny fake data with the types and shapes of the paper's data sets, to try every cell on a CPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from imix.data import Data, TensorSource, load
from imix.data.named import DATASETS, covtype
from imix.data.named.higgs import N_FEATURES as N_HIGGS_FEATURES
from imix.encoders.mel import Clip
from imix.settings import DataSettings

N_TRAIN, N_TEST = 48, 24
N_IMAGE_CLASSES = 10  # more would leave too few samples per class


def fake_data(name: str, data_settings: DataSettings = DataSettings()) -> Data:
    """Return noise that weakly depends on the class, named after the data set that it replaces."""
    rng = np.random.default_rng(0)
    kind = DATASETS[name].kind
    n_classes = N_IMAGE_CLASSES if kind == "images" else DATASETS[name].n_classes
    labels = np.arange(N_TRAIN + N_TEST) % n_classes
    class_signal = labels[:, None] / n_classes
    if kind == "table":
        table = load(_fake_table(name, rng, labels), replace(data_settings, standardize="train"), labels=labels)
        data = replace(table, name=name, settings=data_settings)
    elif kind == "audio":
        clip = Clip()
        time = np.arange(clip.samples) / clip.sample_rate
        tones = 8000 * np.sin(2 * np.pi * (200 + 1000 * class_signal) * time)
        waves = tones + rng.normal(0, 500, (len(labels), len(time)))
        noise = torch.from_numpy(rng.normal(0, 1000, (4, 1, clip.samples)).astype(np.int16))
        source = _source(waves.astype(np.int16)[:, None], labels)
        data = Data(name, source, settings=data_settings, augment="audio", clip=clip, noise=noise)
    else:
        pixels = rng.integers(0, 128, (len(labels), 3, 32, 32)) + (127 * class_signal[:, :, None, None]).astype(int)
        augment = "imagenet" if name.startswith("imagenet") else "cifar"
        data = Data(name, _source(pixels.astype(np.uint8), labels), settings=data_settings, augment=augment)
    rows = torch.arange(len(labels))
    return replace(data, train=data.train.take(rows[:N_TRAIN]), test=data.train.take(rows[N_TRAIN:]))


def fake_voc(folder: Path) -> Path:
    """Write images of squares on gray, with their bounding boxes, in PASCAL VOC format."""
    from PIL import Image, ImageDraw

    names = [f"{i:06d}" for i in range(6)]
    for subfolder in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (folder / subfolder).mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        image = Image.new("RGB", (96, 96), (128, 128, 128))
        box = (10 + 5 * i, 20, 50 + 5 * i, 60)
        ImageDraw.Draw(image).rectangle(box, fill=(200, 40, 40))
        image.save(folder / "JPEGImages" / f"{name}.jpg")
        corners = "".join(f"<{k}>{v}</{k}>" for k, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
        square = f"<object><name>square</name><difficult>0</difficult><bndbox>{corners}</bndbox></object>"
        size = "<size><width>96</width><height>96</height><depth>3</depth></size>"
        (folder / "Annotations" / f"{name}.xml").write_text(f"<annotation>{size}{square}</annotation>")
    for split, split_names in (("train", names[:4]), ("test", names[4:])):
        (folder / "ImageSets/Main" / f"{split}.txt").write_text("\n".join(split_names) + "\n")
    return folder


def _source(inputs: np.ndarray, labels: np.ndarray) -> TensorSource:
    return TensorSource(torch.from_numpy(inputs), torch.from_numpy(labels))


def _fake_table(name: str, rng: np.random.Generator, labels: np.ndarray) -> Any:
    """Rows with the columns of CovType (some are categorical) or Higgs."""
    import pyarrow as pa

    names = covtype.NUMERIC_COLUMNS if name == "covtype" else [f"feature_{i}" for i in range(N_HIGGS_FEATURES)]
    columns = {column: pa.array(rng.normal(labels, 1).astype(np.float32)) for column in names}
    if name == "covtype":
        for column, n_categories in covtype.CATEGORICAL_COLUMNS.items():
            codes = rng.integers(0, n_categories, len(labels))
            columns[column] = pa.DictionaryArray.from_arrays(codes, [str(i) for i in range(n_categories)])
    return pa.table(columns)
