"""2-D maps of features: projection with t-SNE or UMAP, nearest neighbors, and SVG or PNG files."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from imix.data import Data
from imix.data.arrays import encode_classes
from imix.data.tables.frame import Frame
from imix.errors import InputError, printable
from imix.files import check_output_path
from imix.probes.embed import encode_source
from imix.probes.run_data import load_for_run, source_frames
from imix.reports.figure import figure_file, require_matplotlib
from imix.reports.samples import SampleSelection, select_samples
from imix.run import Run, as_run

# Twelve colors that are distinct on white, and twelve on black; they repeat if there are more classes or runs.
COLORS = (
    *("#3b6fb6", "#d1495b", "#d27800", "#008778", "#b469f0", "#006900"),
    *("#870f69", "#965a00", "#4b2db4", "#874b5a", "#a578a5", "#5a78ff"),
)
DARK_COLORS = (
    *("#6ea8fe", "#ff7a8a", "#f0a500", "#3c9696", "#e1a5ff", "#009600"),
    *("#a54bd2", "#e1f000", "#00ffff", "#1ef087", "#96a51e", "#4bc3c3"),
)
NO_LABEL_COLOR = "#999999"
PROJECTIONS = {"tsne": "t-SNE", "umap": "UMAP"}
MAP_SUFFIXES = (".svg", ".png")
MAP_INCHES = 9.0  # width and height, without the legend
MAX_LEGEND_ROWS = 40
MIN_SAMPLES = 4
MAX_LABEL_VALUES = 50  # distinct values of a column that colors a map
PCA_COMPONENTS = 50  # for t-SNE of many samples
COLLAPSE_TOLERANCE = 1e-6  # features whose directions differ by less are considered equal


class ImageFile(type(Path())):  # type: ignore[misc]
    """The path of an image file. Notebooks show the image."""

    def _repr_svg_(self) -> str | None:
        return self.read_text(encoding="utf-8") if self.suffix == ".svg" else None

    def _repr_png_(self) -> bytes | None:
        return self.read_bytes() if self.suffix == ".png" else None


def draw_map(
    run: "Run | str | Path",
    out: "str | Path",
    data: Any = None,
    method: str = "tsne",
    samples: int = 2000,
    classes: Sequence[str] = (),
    *,
    label: str | None = None,
    missing_label: str | None = None,
    columns: Mapping[str, str] | None = None,
    path_column: str | None = None,
    data_dir: str | None = None,
    device: str = "auto",
) -> ImageFile:
    """Draw a 2-D map of a run's features as an SVG or PNG file.

    Shows test samples if the data has any, otherwise training samples. In a notebook, the result shows the map.

    Parameters
    ----------
    run : Run or path
        The run, or its folder.
    out : path
        File to write; it ends in .svg or .png.
    data : any data that `imix.evaluate` accepts, optional
        Data to show. By default the data that the run was trained on.
    method : {"tsne", "umap"}
        Projection to two dimensions. "umap" needs the extra `umap`.
    samples : int
        Maximum number of samples to show, at least 4.
    classes : sequence of str
        Names of the classes to show, or their numbers if they have no names. By default all classes.
    label : str, optional
        Column of a table that colors the map; it may be one of the run's input columns. By default the run's label.
    missing_label : str, optional
        Label that means "no label", such as "-1". By default the run's.
    columns : dict of str to str, optional
        Columns of a table to ignore because the run was trained without them, such as {"id": "drop"}.
    path_column : str, optional
        Column of a table with the paths of the files that are the samples. By default the run's.
    data_dir : str, optional
        Folder with the files of a named data set.
    device : str
        "auto", "cpu", "cuda" or "cuda:N".

    Returns
    -------
    ImageFile
        The path of the file that was written.

    Examples
    --------
    >>> imix.draw_map("runs/customers", "map.svg", label="region")  # doctest: +SKIP
    ImageFile('map.svg')
    """
    out = check_output_path(Path(out), MAP_SUFFIXES, "a map")
    if samples < MIN_SAMPLES:
        raise InputError(f"`samples` must be at least {MIN_SAMPLES}; got {samples}")
    require_matplotlib()
    run = as_run(run)
    source = run.config.data.name if data is None else data
    label_is_input = label is not None and run.table is not None and label in run.table.kinds
    new_label = None if label_is_input else label
    options: Any = {"missing_label": missing_label, "columns": columns, "path_column": path_column}
    dataset = load_for_run(run, source, label=new_label, data_dir=data_dir, **options)
    if label is not None and label_is_input:
        dataset = _label_by_column(dataset, label, source_frames(source, dataset, [label]))
    selection = select_samples(dataset, None if classes else samples)
    if classes:
        selection = replace(selection, rows=np.sort(_rows_of_classes(dataset, selection, classes)[:samples]))
    if len(selection.rows) < MIN_SAMPLES:
        raise InputError(
            f"a map needs at least {MIN_SAMPLES} samples; {dataset.name} has {len(selection.rows)} to show"
        )
    selected = selection.take()
    labels = None if selected.labels is None or selected.is_numeric else selected.labels.numpy()
    points = project_2d(encode_source(run, selected, device), method)
    samples_shown = f"{len(points):,} {selection.split} samples of {Path(dataset.name).name}"
    title = f"{PROJECTIONS[method]} of the features of {samples_shown}"
    return ImageFile(save_map(out, points, labels, dataset.class_names, title))


def _label_by_column(data: Data, label: str, frames: Sequence[Frame]) -> Data:
    """Use the values of a column as classes; `frames` hold the training rows and, if there are any, the test rows."""
    values = [None if value is None else str(value) for frame in frames for value in frame.column(label).to_pylist()]
    numbers, names = encode_classes(
        np.array(values, object), len(values), f"column {label!r}", missing_label=data.settings.missing_label
    )
    if len(names) > MAX_LABEL_VALUES:
        raise InputError(
            f"column {label!r} has {len(names):,} distinct values; a map can be colored by at most {MAX_LABEL_VALUES}"
        )
    data.train.labels = numbers[: len(data.train)]
    if data.test is not None:
        data.test.labels = numbers[len(data.train) :]
    return replace(data, class_names=list(names))


def _rows_of_classes(data: Data, selection: SampleSelection, classes: Sequence[str]) -> np.ndarray:
    """Selected rows that belong to the given classes, in random order."""
    labels = selection.source.labels
    if labels is None or selection.source.is_numeric:
        raise InputError(f"cannot select classes: the {selection.split} samples of {data.name} have no classes")
    if unknown := [name for name in classes if name not in data.display_names]:
        raise InputError(f"unknown class {unknown[0]!r}; choose from {', '.join(data.display_names)}")
    numbers = torch.tensor([data.display_names.index(name) for name in classes])
    order = np.random.default_rng(0).permutation(selection.rows)
    return order[torch.isin(labels.cpu()[torch.from_numpy(order)], numbers).numpy()]


def project_2d(features: np.ndarray, method: str = "tsne") -> np.ndarray:
    """Project L2-normalized features (N, F) to points (N, 2) in the unit square with t-SNE or UMAP."""
    if len(features) == 1:
        return np.full((1, 2), 0.5)
    if not np.isfinite(features).all():
        raise InputError("cannot draw a map: the encoder's features are not finite")
    directions = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    if np.ptp(directions, axis=0).max() < COLLAPSE_TOLERANCE:  # t-SNE fails on the features of a collapsed encoder
        return np.full((len(features), 2), 0.5)
    if method == "umap":
        try:
            import umap
        except ImportError as error:
            raise InputError("method 'umap' needs an extra: pip install 'imix-ssl[umap]'") from error
        points = umap.UMAP(random_state=0).fit_transform(directions)
    elif method == "tsne":
        from sklearn.decomposition import PCA
        from sklearn.manifold import TSNE

        if len(directions) > 5000 and directions.shape[1] > PCA_COMPONENTS:
            directions = np.asarray(PCA(PCA_COMPONENTS, random_state=0).fit_transform(directions))
        perplexity = min(30.0, max(1.0, (len(directions) - 1) / 3))
        init = "pca" if min(directions.shape) > 1 else "random"
        points = np.asarray(TSNE(init=init, perplexity=perplexity, random_state=0).fit_transform(directions))
    else:
        raise InputError(f"`method` must be 'tsne' or 'umap'; got {method!r}")
    low, high = points.min(0), points.max(0)
    return (points - low) / np.maximum(high - low, 1e-12)


def nearest_neighbors(features: np.ndarray, k: int = 8) -> np.ndarray:
    """Indices (N, k) of the k other samples with the highest cosine similarity, nearest first."""
    from sklearn.neighbors import NearestNeighbors

    k = min(k, len(features) - 1)
    if k == 0:
        return np.empty((len(features), 0), int)
    index = NearestNeighbors(n_neighbors=k, metric="cosine").fit(features)
    return np.asarray(index.kneighbors(return_distance=False))


def save_map(
    path: Path, points: np.ndarray, labels: np.ndarray | None, class_names: Sequence[str] = (), title: str = ""
) -> Path:
    """Write points (N, 2), colored by label, with a legend, to an .svg or .png file."""
    names = dict(enumerate(map(printable, class_names))) | {-1: "no label"}
    point_labels = np.zeros(len(points), int) if labels is None else labels
    classes = [int(label) for label in np.unique(point_labels)]
    with figure_file(path, MAP_INCHES, MAP_INCHES) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_title(printable(title), loc="left")
        for label in classes:
            color = COLORS[label % len(COLORS)] if label >= 0 else NO_LABEL_COLOR
            x, y = points[point_labels == label].T
            axes.scatter(x, y, s=20, c=color, alpha=0.8)
        if labels is not None:
            axes.legend(
                axes.collections,
                [names.get(label, str(label)) for label in classes],
                loc="upper left",
                bbox_to_anchor=(1, 1),
                ncols=1 + len(classes) // MAX_LEGEND_ROWS,
                markerscale=2,
                frameon=False,
            )
    return path
