"""What a report's embedding map shows for each sample: name, class, thumbnail, audio or table row."""

import base64
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision.utils import make_grid

from imix.batch import to_float
from imix.data import Data, Source
from imix.data.tables.encode import read_frames
from imix.encoders.mel import FLOOR, LogMel
from imix.run import Run

THUMBNAIL_SIZE = 48  # largest side, in pixels
MAX_THUMBNAILS = 20_000
MAX_AUDIO_CLIPS = 600
MAX_COLUMNS = 24  # maximum number of table columns to show
CHUNK_SIZE = 256  # samples that are scaled down at once


@dataclass(frozen=True)
class SampleSelection:
    """Samples to show: sorted row indices of the training or the test split."""

    split: str  # "training" or "test"
    source: Source  # all samples of that split
    rows: np.ndarray

    def take(self) -> Source:
        """The selected samples."""
        return self.source.take(torch.from_numpy(self.rows))


def select_samples(data: Data, max_samples: int | None = None) -> SampleSelection:
    """Select random samples: test samples if there are any, otherwise training samples."""
    split, source = ("training", data.train) if data.test is None else ("test", data.test)
    rows = np.random.default_rng(0).permutation(len(source))[:max_samples]
    return SampleSelection(split, source, np.sort(rows))


def sample_content(run: Run, data: Data, selection: SampleSelection) -> dict[str, Any]:
    """Everything that the report shows of the selected samples, as JSON values."""
    samples, rows = selection.take(), selection.rows.tolist()
    offset = 0 if selection.split == "training" else len(data.train)
    content: dict[str, Any] = {
        "data": data.name,
        "label": data.settings.label,
        "split": selection.split,
        "total": len(selection.source),
        "indices": rows,
        "names": [data.sample_names[offset + row] for row in rows] if data.sample_names else [],
        "labels": None if samples.labels is None or samples.is_numeric else samples.labels.tolist(),
        "classes": data.display_names,
    }
    shape = data.train.shape
    if data.clip is not None:
        mel = LogMel(data.clip)
        content["sprite"] = _sprite(_thumbnails(1 + mel(clips).flip(2) / FLOOR) for clips in _chunks(samples))
        content["audio"] = [_ogg(clip[0].numpy(), data.clip.sample_rate) for clip in samples.sample(MAX_AUDIO_CLIPS)]
    elif shape is not None and len(shape) == 3:
        content["sprite"] = _sprite(_thumbnails(images) for images in _chunks(samples))
    elif shape is not None and len(shape) == 1:
        content["columns"], content["rows"] = _table_rows(run, data, selection, samples.sample(len(samples)))
    return content


def _chunks(source: Source) -> Iterator[Tensor]:
    """Samples as floats, in chunks because thousands of large images do not fit in memory."""
    for batch, _ in source.batches(torch.arange(min(len(source), MAX_THUMBNAILS)).split(CHUNK_SIZE)):
        yield to_float(batch)


def _thumbnails(images: Tensor) -> Tensor:
    """Thumbnails (N, 3 or 1, h, w) of images (N, C, H, W); grayscale if there are fewer than three channels."""
    images = images[:, :3] if images.shape[1] >= 3 else images[:, :1]
    if max(images.shape[2:]) <= THUMBNAIL_SIZE:
        return images
    return torch.nn.functional.interpolate(images, (THUMBNAIL_SIZE, THUMBNAIL_SIZE), mode="bilinear", antialias=True)


def _sprite(chunks: Iterable[Tensor]) -> dict[str, Any]:
    """Tile thumbnails (N, 3 or 1, h, w) into one WebP image, as a data URI with the layout of the tiles."""
    from PIL import Image

    thumbnails = torch.cat(list(chunks))
    n, _, height, width = thumbnails.shape
    columns = int(np.ceil(np.sqrt(n * height / width)))
    rescale = not (thumbnails.min() >= 0 and thumbnails.max() <= 1)
    sheet = make_grid(thumbnails, nrow=columns, padding=0, normalize=rescale, scale_each=True)
    file = io.BytesIO()
    Image.fromarray((sheet * 255).round().byte().permute(1, 2, 0).numpy()).save(file, "WEBP", quality=80)
    uri = _data_uri("image/webp", file.getvalue())
    return {"uri": uri, "columns": columns, "width": width, "height": height, "count": n}


def _ogg(waveform: np.ndarray, sample_rate: int) -> str:
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, waveform, sample_rate, format="OGG")
    return _data_uri("audio/ogg", file.getvalue())


def _data_uri(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def _table_rows(run: Run, data: Data, selection: SampleSelection, encoded: Tensor) -> tuple[list[str], list[list[Any]]]:
    """Column names and rows: the inputs and label as written in a table's file, or the numbers of an array.

    Dropped columns are omitted, because they may contain personal data such as names and addresses.
    """
    if data.table is not None and Path(data.name).is_file():
        frames = read_frames(Path(data.name), data.settings, run.table)
        frame = frames[0 if selection.split == "training" else 1].take(selection.rows)
        inputs = run.table.kinds if run.table is not None else {}
        names = [name for name in frame.columns if name in inputs or name == data.settings.label][:MAX_COLUMNS]
        values = [[_short_value(value) for value in frame.column(name).to_pylist()] for name in names]
        return names, [list(row) for row in zip(*values, strict=True)]
    numbers = encoded[:, :MAX_COLUMNS].double().numpy().round(3)
    return [str(column) for column in range(numbers.shape[1])], numbers.tolist()


def _short_value(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}") if np.isfinite(value) else str(value)
    return value if isinstance(value, int | bool) or value is None else str(value)[:80]
