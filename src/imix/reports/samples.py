"""What a map shows of a sample: its name and class, and the image, the sound with its mel picture, or the row."""

import base64
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from imix.batch import as_floats
from imix.data import Data, Source
from imix.data.mel import FLOOR, LogMel
from imix.data.tabular import read_frames
from imix.run import Run

THUMB = 48  # pixels at most
PICTURES = 20_000  # at most
PIECE = 256  # samples that are made small at a time
SOUNDS = 600  # at most
VALUES = 24  # of a row, at most


@dataclass(frozen=True)
class Chosen:
    """Samples to show: rows, in order, of the training or the test part."""

    part: str
    source: Source  # that part
    rows: np.ndarray

    @property
    def taken(self) -> Source:
        """The samples themselves."""
        return self.source.take(torch.from_numpy(self.rows))


def choose(data: Data, most: int | None = None) -> Chosen:
    """Which samples to show, at random: of the test part where there is one."""
    part, source = ("train", data.train) if data.test is None else ("test", data.test)
    return Chosen(part, source, np.sort(np.random.default_rng(0).permutation(len(source))[:most]))


def show(run: Run, data: Data, chosen: Chosen) -> dict[str, Any]:
    """Everything the page shows of chosen samples of data that was read whole."""
    taken, rows = chosen.taken, chosen.rows
    offset = 0 if chosen.part == "train" else len(data.train)
    shown: dict[str, Any] = {
        "data": data.name,
        "label": data.reading.label,
        "part": chosen.part,
        "of": len(chosen.source),
        "numbers": rows.tolist(),
        "names": [data.names[offset + row] for row in rows.tolist()] if data.names else [],
        "labels": None if taken.labels is None else taken.labels.tolist(),
        "classes": data.called,
    }
    shape = data.train.shape
    if data.clip is not None:
        mel = LogMel(data.clip)
        shown["sprite"] = _sprite(_thumbs(1 + mel(clips).flip(2) / FLOOR) for clips in _pieces(taken))
        shown["sounds"] = [_ogg(clip[0].numpy(), data.clip.rate) for clip in taken.sample(SOUNDS)]
    elif shape is not None and len(shape) == 3:
        shown["sprite"] = _sprite(_thumbs(images) for images in _pieces(taken))
    elif shape is not None and len(shape) == 1:
        shown["columns"], shown["rows"] = _rows(run, data, chosen, taken.sample(len(taken)))
    return shown


def _pieces(source: Source) -> Iterator[Tensor]:
    """Samples as floats, a few at a time: thousands of large ones do not fit in memory."""
    for batch, _ in source.batches(torch.arange(min(len(source), PICTURES)).split(PIECE)):
        yield as_floats(batch)


def _thumbs(images: Tensor) -> Tensor:
    """Small images (N, 3 or 1, h, w) of images (N, C, H, W): grey where there are not three channels."""
    images = images[:, :3] if images.shape[1] >= 3 else images[:, :1]
    if max(images.shape[2:]) <= THUMB:
        return images
    return torch.nn.functional.interpolate(images, (THUMB, THUMB), mode="bilinear", antialias=True)


def _sprite(pieces: Iterable[Tensor]) -> dict[str, Any]:
    """Thumbnails (N, 3 or 1, h, w) in pieces, side by side in one WebP, as a data URI."""
    from PIL import Image

    thumbs = torch.cat(list(pieces))
    n, _, height, width = thumbs.shape
    columns = int(np.ceil(np.sqrt(n * height / width)))
    sheet = np.zeros((-(-n // columns) * height, columns * width, 3), np.uint8)
    any_range = not (thumbs.min() >= 0 and thumbs.max() <= 1)
    for at, thumb in enumerate(thumbs):
        if any_range:
            thumb = (thumb - thumb.min()) / (thumb.max() - thumb.min()).clamp(min=1e-6)
        y, x = at // columns * height, at % columns * width
        sheet[y : y + height, x : x + width] = (thumb.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
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


def _rows(run: Run, data: Data, chosen: Chosen, encoded: Tensor) -> tuple[list[str], list[list[Any]]]:
    """The inputs and the label of a table's rows as they are in its file, or the numbers of an array.

    Other columns are left out: whoever dropped names and addresses does not want them on a page.
    """
    if data.table is not None and Path(data.name).is_file():
        frames = read_frames(Path(data.name), data.reading, run.table)
        frame = frames[0 if chosen.part == "train" else 1].take(chosen.rows)
        inputs = run.table.kinds if run.table is not None else {}
        names = [name for name in frame.columns if name in inputs or name == data.reading.label][:VALUES]
        values = [[_short(value) for value in frame.column(name).to_pylist()] for name in names]
        return names, [list(row) for row in zip(*values, strict=True)]
    shown = encoded[:, :VALUES].double().numpy().round(3)
    return [str(number) for number in range(shown.shape[1])], shown.tolist()


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}") if np.isfinite(value) else str(value)
    return value if isinstance(value, int | bool) or value is None else str(value)[:80]
