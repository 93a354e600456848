"""Tiny data in place of the paper's, of the same kind and shape, so that every cell can be tried on a CPU."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from imix.data import Data, Tensors, load
from imix.data.mel import Clip
from imix.data.uci import COVTYPE_FLAGS, COVTYPE_NUMERIC, HIGGS_FEATURES
from imix.settings import Reading

TRAIN, TEST = 48, 24
CLASSES = {"covtype": 7, "higgs100k": 2, "higgs1m": 2, "speech_commands": 12}  # images: 10


def stand_in(name: str, reading: Reading = Reading()) -> Data:
    """Noise with a trace of its class, called by the name of the data set that it stands in for."""
    rng = np.random.default_rng(0)
    classes = CLASSES.get(name, 10)
    labels = np.arange(TRAIN + TEST) % classes
    if name in ("covtype", "higgs100k", "higgs1m"):
        return replace(_table(name, rng, labels, reading), name=name)
    trace = labels[:, None] / classes
    if name == "speech_commands":
        clip = Clip()
        time = np.arange(clip.samples) / clip.rate
        waves = 8000 * np.sin(2 * np.pi * (200 + 1000 * trace) * time) + rng.normal(0, 500, (len(labels), len(time)))
        noise = torch.from_numpy(rng.normal(0, 1000, (4, 1, clip.samples)).astype(np.int16))
        train, test = _parts(waves.astype(np.int16)[:, None], labels)
        return Data(name, train, test, reading=reading, augment="speech", clip=clip, noise=noise)
    pixels = rng.integers(0, 128, (len(labels), 3, 32, 32)) + (127 * trace[:, :, None, None]).astype(int)
    train, test = _parts(pixels.astype(np.uint8), labels)
    return Data(name, train, test, reading=reading, augment="imagenet" if name.startswith("imagenet") else "cifar")


def stand_in_voc(folder: Path) -> Path:
    """Squares on grey, in VOC's format."""
    from PIL import Image, ImageDraw

    names = [f"{number:06d}" for number in range(6)]
    for part in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for at, name in enumerate(names):
        image = Image.new("RGB", (96, 96), (128, 128, 128))
        box = (10 + 5 * at, 20, 50 + 5 * at, 60)
        ImageDraw.Draw(image).rectangle(box, fill=(200, 40, 40))
        image.save(folder / "JPEGImages" / f"{name}.jpg")
        corners = "".join(f"<{k}>{v}</{k}>" for k, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
        thing = f"<object><name>square</name><difficult>0</difficult><bndbox>{corners}</bndbox></object>"
        size = "<size><width>96</width><height>96</height><depth>3</depth></size>"
        (folder / "Annotations" / f"{name}.xml").write_text(f"<annotation>{size}{thing}</annotation>")
    for part, chosen in (("train", names[:4]), ("test", names[4:])):
        (folder / "ImageSets/Main" / f"{part}.txt").write_text("\n".join(chosen) + "\n")
    return folder


def _parts(x: np.ndarray, y: np.ndarray) -> tuple[Tensors, Tensors]:
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    return Tensors(inputs[:TRAIN], labels[:TRAIN]), Tensors(inputs[TRAIN:], labels[TRAIN:])


def _table(name: str, rng: np.random.Generator, labels: np.ndarray, reading: Reading) -> Data:
    """Rows with the columns of the table that is meant; those of CovType have categories."""
    import pyarrow as pa

    def numbers() -> np.ndarray:
        return rng.normal(labels, 1).astype(np.float32)

    if name == "covtype":
        columns = {column: pa.array(numbers()) for column in COVTYPE_NUMERIC}
        for column, many in COVTYPE_FLAGS.items():
            columns[column] = pa.DictionaryArray.from_arrays(
                rng.integers(0, many, len(labels)), list(map(str, range(many)))
            )
    else:
        columns = {f"feature_{at}": pa.array(numbers()) for at in range(HIGGS_FEATURES)}
    whole = load(pa.table(columns), replace(reading, standardise="train"), labels=labels)
    rows = torch.arange(len(labels))
    return replace(whole, train=whole.train.take(rows[:TRAIN]), test=whole.train.take(rows[TRAIN:]), reading=reading)
