"""What a map shows of a sample: its name and class, and the image, the sound with its mel picture, or the row."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imix.batch import as_floats
from imix.data import Data
from imix.data.mel import FLOOR, LogMel
from imix.data.tabular import read_frames
from imix.run import Run

THUMB = 48  # pixels at most
PICTURES = 20_000  # at most
SOUNDS = 600  # at most
VALUES = 24  # of a row, at most


def choose(data: Data, most: int | None) -> tuple[str, np.ndarray]:
    """Which part of the data to show, test samples where there are any, and which rows of it, in order."""
    part = "train" if data.test is None else "test"
    n = len(data.train if data.test is None else data.test)
    return part, np.sort(np.random.default_rng(0).permutation(n)[:most])


def show(run: Run, data: Data, part: str, rows: np.ndarray) -> dict[str, Any]:
    """Everything the page shows of those rows of that part of the data."""
    source = data.train if part == "train" or data.test is None else data.test
    taken = source.take(torch.from_numpy(rows))
    offset = 0 if part == "train" else len(data.train)
    shown: dict[str, Any] = {
        "part": part,
        "of": len(source),
        "numbers": rows.tolist(),
        "names": [data.names[offset + row] for row in rows.tolist()] if data.names else [],
        "labels": None if taken.labels is None else taken.labels.tolist(),
        "classes": list(data.class_names) or _numbered(taken.labels),
    }
    shape = data.train.shape
    if data.clip is not None:
        clips = next(taken.batches([torch.arange(len(taken))]))[0]
        pictures = torch.cat([LogMel(data.clip)(as_floats(piece)) for piece in clips[:PICTURES].split(256)])
        shown["sprite"] = _sprite(1 + pictures.flip(2) / FLOOR)
        shown["sounds"] = [_ogg(clip[0].numpy(), data.clip.rate) for clip in clips[:SOUNDS]]
    elif shape is not None and len(shape) == 3:
        images = next(taken.batches([torch.arange(min(len(taken), PICTURES))]))[0]
        shown["sprite"] = _sprite(as_floats(images))
    elif shape is not None and len(shape) == 1:
        shown["columns"], shown["rows"] = _rows(run, data, part, rows, taken.sample(len(taken)))
    return shown


def _numbered(labels: Tensor | None) -> list[str]:
    return [] if labels is None else [str(number) for number in range(int(labels.max()) + 1)]


def _sprite(images: Tensor) -> dict[str, Any]:
    """Thumbnails of (N, C, H, W) side by side in one WebP, as a data URI; grey where there are not three channels."""
    from PIL import Image

    images = images[:, :3] if images.shape[1] >= 3 else images[:, :1].expand(-1, 3, -1, -1)
    if not (images.min() >= 0 and images.max() <= 1):  # values of any range
        low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
        images = (images - low) / (high - low).clamp(min=1e-6)
    if max(images.shape[2:]) > THUMB:
        images = torch.nn.functional.interpolate(images, (THUMB, THUMB), mode="bilinear", antialias=True)
    n, _, height, width = images.shape
    columns = int(np.ceil(np.sqrt(n * height / width)))
    sheet = np.zeros((-(-n // columns) * height, columns * width, 3), np.uint8)
    tiles = (images.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()
    for at, tile in enumerate(tiles):
        y, x = at // columns * height, at % columns * width
        sheet[y : y + height, x : x + width] = tile
    file = io.BytesIO()
    Image.fromarray(sheet).save(file, "WEBP", quality=80)
    return {"uri": _uri("image/webp", file.getvalue()), "columns": columns, "width": width, "height": height, "n": n}


def _ogg(wave: np.ndarray, rate: int) -> str:
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, wave, rate, format="OGG")
    return _uri("audio/ogg", file.getvalue())


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _rows(run: Run, data: Data, part: str, rows: np.ndarray, encoded: Tensor) -> tuple[list[str], list[list[Any]]]:
    """The columns of a table with the values they have in its file, or the numbers of an array."""
    if data.table is not None and Path(data.name).is_file():
        frame = read_frames(Path(data.name), data.reading, run.table)[0 if part == "train" else 1].take(rows)
        names = list(frame.columns[:VALUES])
        values = [[_short(value) for value in frame.column(name).to_pylist()] for name in names]
        return names, [list(row) for row in zip(*values, strict=True)]
    shown = encoded[:, :VALUES].double().numpy().round(3)
    return [str(number) for number in range(shown.shape[1])], shown.tolist()


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}") if np.isfinite(value) else str(value)
    return value if isinstance(value, int | bool) or value is None else str(value)[:80]
