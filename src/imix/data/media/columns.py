"""Columns of tables that hold image or audio files: their paths, or their bytes (as Hugging Face stores them)."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from imix.data.media.references import (
    AUDIO_SUFFIXES,
    IMAGE_SUFFIXES,
    MediaFiles,
    Reference,
    StoredFile,
    existing_files,
)
from imix.data.tables.encode import encode_labels
from imix.data.tables.frame import Frame, as_frame
from imix.data.tables.huggingface import read_saved_dataset
from imix.data.tables.values import is_text
from imix.errors import InputError
from imix.settings import DataSettings


def find_media_column(frame: Frame, data_settings: DataSettings) -> str | None:
    """Return `data_settings.path_column` or, by default, the only column with the bytes of image or audio files."""
    if (column := data_settings.path_column) is not None:
        frame.check_columns([column])
        if not (is_text(frame.column(column).type) or holds_bytes(frame.column(column).type)):
            raise InputError(
                f"`path_column={column!r}` must have paths or bytes of files; its type is {frame.column(column).type}"
            )
        return column
    dropped = [name for name, kind in data_settings.columns.items() if kind == "drop"]
    found = [name for name in frame.columns if name not in dropped and _has_media(frame, name)]
    if len(found) > 1:
        raise InputError(f"{frame.name} has files in several columns: {', '.join(found)}; pass one as `path_column`")
    return found[0] if found else None


def read_media_frames(
    frames: Sequence[Frame], column: str, data_settings: DataSettings, labels: Any, folders: Sequence[Path]
) -> tuple[list[MediaFiles], str]:
    """Return the files of each table, and their kind, "images" or "audio"; paths are relative to the table's folder."""
    class_names: Sequence[str] = ()
    tensors: Sequence[Any] = [labels] + [None] * (len(frames) - 1)
    if data_settings.label is not None:
        kind = data_settings.columns.get(data_settings.label)
        tensors, class_names = encode_labels(
            frames, data_settings.label, kind, data_settings.missing_label, needed=False
        )
    parts = []
    for frame, each, folder in zip(frames, tensors, folders, strict=True):
        frame.check_columns([column])
        parts.append(MediaFiles(frame.name, _references(frame, column, folder), each, class_names, True))
    return parts, kind_of(parts)


def kind_of(parts: Sequence[MediaFiles]) -> str:
    """Return the kind of the files, "images" or "audio"; all of them must be of the same kind."""
    first = parts[0].references[0]
    kind = _media_kind(first)
    if kind is None:
        allowed = ", ".join((*IMAGE_SUFFIXES, *AUDIO_SUFFIXES))
        raise InputError(f"{first} is neither an image nor an audio file ({allowed})")
    for reference in (reference for part in parts for reference in part.references if isinstance(reference, Path)):
        if kind_of_name(str(reference)) not in (kind, None):
            raise InputError(f"images and audio files cannot be mixed; got {str(first)!r} and {str(reference)!r}")
    return kind


def kind_of_name(name: str) -> str | None:
    """Return the kind of a file according to its name."""
    name = name.lower()
    return "images" if name.endswith(IMAGE_SUFFIXES) else "audio" if name.endswith(AUDIO_SUFFIXES) else None


def holds_bytes(arrow_type: Any) -> bool:
    """Whether values of an arrow type are bytes, or structs with a field `bytes`."""
    import pyarrow as pa

    if pa.types.is_struct(arrow_type):
        index = arrow_type.get_field_index("bytes")
        return index >= 0 and (
            pa.types.is_null(arrow_type.field(index).type) or holds_bytes(arrow_type.field(index).type)
        )
    return any(test(arrow_type) for test in (pa.types.is_binary, pa.types.is_large_binary))


def may_hold_files(data: Any) -> bool:
    """Whether a table may have the bytes of files, according to the types of its columns."""
    from pyarrow import parquet

    if isinstance(data, str | Path):
        path = Path(data)
        try:
            schema = read_saved_dataset(path).schema if path.is_dir() else parquet.read_schema(path)
        except (OSError, ValueError):  # not a Parquet file, or a damaged one
            return False
    else:
        schema = as_frame(data).data.schema
    return any(map(holds_bytes, schema.types))


def _has_media(frame: Frame, column: str) -> bool:
    """Whether a column holds the bytes of image or audio files, or the structs in which Hugging Face stores them."""
    values = frame.column(column)
    if not holds_bytes(values.type):
        return False
    if hasattr(values.type, "get_field_index"):
        return values.type.get_field_index("path") >= 0
    values = values.drop_null()
    return len(values) > 0 and _media_kind(StoredFile(column, values, 0)) is not None


def _references(frame: Frame, column: str, folder: Path) -> list[Reference]:
    """Return the files in a column."""
    import pyarrow.compute as pc

    values = frame.column(column)
    place = f"of column {column!r} of {frame.name}"
    if is_text(values.type):
        return list(existing_files(values.to_pylist(), folder, "row", place))
    paths = [None] * len(values)
    if not holds_bytes(values.type):
        raise InputError(f"column {column!r} of {frame.name} must have bytes or paths; its type is {values.type}")
    if hasattr(values.type, "get_field_index"):  # a struct
        if values.type.get_field_index("path") >= 0:
            paths = pc.struct_field(values, "path").to_pylist()
        values = pc.struct_field(values, "bytes")
    has_bytes = values.is_valid().to_numpy()
    references: list[Reference] = []
    for i, path in enumerate(paths):
        if has_bytes[i]:
            references.append(StoredFile(f"row {i} {place}{f' ({path})' if path else ''}", values, i))
        else:
            references += existing_files([path], folder, "row", place, i)
    return references


def _media_kind(reference: Reference) -> str | None:
    """Return the kind of a file: a path by its name, stored bytes by their content."""
    if isinstance(reference, Path):
        return kind_of_name(str(reference))
    import soundfile
    from PIL import Image

    with reference.open("rb") as stream:
        content = stream.read()
    try:
        Image.open(BytesIO(content)).close()
        return "images"
    except Exception:  # a damaged file can raise almost any exception
        pass
    try:
        soundfile.info(BytesIO(content))
        return "audio"
    except Exception:
        return None
