"""Maps of a representation: places in the plane, nearest neighbours, and pictures of them as SVG or PNG."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO
from xml.sax.saxutils import escape

import numpy as np
import torch

from imix.data import Data
from imix.data.arrays import class_numbers
from imix.data.frame import Frame
from imix.errors import InputError, printable
from imix.evaluation.reading import frames_of, load_for
from imix.evaluation.vectors import embed
from imix.files import writable, write_atomically, write_text
from imix.reports.samples import Chosen, choose
from imix.run import Run, as_run

# Twelve colours that are told apart on white and on black; further classes begin again.
COLOURS = (
    *("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948"),
    *("#b07aa1", "#ff9da7", "#9c755f", "#2f4b7c", "#d37295", "#a0cbe8"),
)
MAPS = (".svg", ".png")
SIDE = 900  # of a picture
FEWEST = 4  # samples of a picture
ENOUGH = 50  # principal components that t-SNE gets of many samples
MOST_VALUES = 50  # of a column, by which a map is coloured
ALIKE = 1e-6  # directions that differ by less are one


def draw_map(
    run: "Run | str | Path",
    out: "str | Path",
    data: Any = None,
    method: str = "tsne",
    samples: int = 2000,
    classes: Sequence[str] = (),
    *,
    label: str | None = None,
    columns: Mapping[str, str] | None = None,
    data_dir: str | None = None,
    device: str = "auto",
) -> Path:
    """Draw a run's features of some samples, of all or chosen classes, as an .svg or .png file.

    `data` is what the run was trained on unless given, test samples where there are any; `label`, `columns` and
    `data_dir` say how it is read, as for `evaluate`. A map's label may be a column that was an input.
    """
    out = writable(Path(out), MAPS, "a map")
    if samples < FEWEST:
        raise InputError(f"a map needs at least {FEWEST} samples; got {samples}")
    run = as_run(run)
    name = run.config["data"]["name"] if data is None else data
    seen = label is not None and run.table is not None and label in run.table.kinds
    dataset = load_for(run, name, label=None if seen else label, columns=columns, data_dir=data_dir)
    if label is not None and seen:
        dataset = _classed(dataset, label, frames_of(name, dataset, [label]))
    chosen = choose(dataset, None if classes else samples)
    if classes:
        chosen = replace(chosen, rows=np.sort(_of_classes(dataset, chosen, classes)[:samples]))
    if len(chosen.rows) < FEWEST:
        raise InputError(f"a map needs at least {FEWEST} samples; {dataset.name} has {len(chosen.rows)} to show")
    taken = chosen.taken
    labels = None if taken.labels is None else taken.labels.numpy()
    return save_map(out, places(embed(run, taken, device=device), method), labels, dataset.class_names)


def _classed(data: Data, label: str, frames: Sequence[Frame]) -> Data:
    """The data with the values of a column as the classes of its rows, training rows before test rows."""
    values = [None if value is None else str(value) for frame in frames for value in frame.column(label).to_pylist()]
    numbers, names = class_numbers(np.array(values, object), len(values), f"column {label!r}")
    if len(names) > MOST_VALUES:
        raise InputError(f"column {label!r} has {len(names):,} values, too many to colour a map by")
    data.train.labels = numbers[: len(data.train)]
    if data.test is not None:
        data.test.labels = numbers[len(data.train) :]
    return replace(data, class_names=list(names))


def _of_classes(data: Data, chosen: Chosen, wanted: Sequence[str]) -> np.ndarray:
    """Those rows, in random order, of the wanted classes, by name, or by number where classes have no names."""
    labels = chosen.source.labels
    if labels is None:
        raise InputError(f"the {chosen.part} samples of {data.name} have no labels, so no classes can be chosen")
    if strange := [name for name in wanted if name not in data.called]:
        raise InputError(f"there is no class {strange[0]!r}; there are {', '.join(data.called)}")
    numbers = torch.tensor([data.called.index(name) for name in wanted])
    order = np.random.default_rng(0).permutation(chosen.rows)
    return order[torch.isin(labels.cpu()[torch.from_numpy(order)], numbers).numpy()]


def places(features: np.ndarray, method: str = "tsne") -> np.ndarray:
    """Places (N, 2) of features (N, F) in the plane, in 0..1, by t-SNE or UMAP (extra: umap-learn) of directions."""
    if len(features) == 1:
        return np.full((1, 2), 0.5)
    if not np.isfinite(features).all():
        raise InputError("the encoder gives numbers that are not finite, of which there is no map")
    directions = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    if np.ptp(directions, axis=0).max() < ALIKE:  # a collapsed encoder, which t-SNE does not survive
        return np.full((len(features), 2), 0.5)
    if method == "umap":
        try:
            import umap
        except ImportError as error:
            raise InputError("UMAP needs the extra: pip install 'imix-ssl[umap]'") from error
        found = umap.UMAP(random_state=0).fit_transform(directions)
    elif method == "tsne":
        from sklearn.decomposition import PCA
        from sklearn.manifold import TSNE

        if len(directions) > 5000 and directions.shape[1] > ENOUGH:
            directions = np.asarray(PCA(ENOUGH, random_state=0).fit_transform(directions))
        perplexity = min(30.0, max(1.0, (len(directions) - 1) / 3))
        init = "pca" if min(directions.shape) > 1 else "random"
        found = np.asarray(TSNE(init=init, perplexity=perplexity, random_state=0).fit_transform(directions))
    else:
        raise InputError(f"unknown map {method!r}; choose tsne or umap")
    low, high = found.min(0), found.max(0)
    return (found - low) / np.maximum(high - low, 1e-12)


def neighbours(features: np.ndarray, k: int = 8) -> np.ndarray:
    """The k nearest other samples of each by cosine, (N, k), nearest first."""
    directions = (features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)).astype(np.float32)
    k = min(k, len(directions) - 1)
    found = np.empty((len(directions), k), np.int32)
    for start in range(0, len(directions), 1024):
        similarity = directions[start : start + 1024] @ directions.T
        rows = np.arange(len(similarity))
        similarity[rows, start + rows] = -np.inf
        nearest = np.argpartition(-similarity, max(0, k - 1), axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(similarity, nearest, 1), axis=1, kind="stable")
        found[start : start + 1024] = np.take_along_axis(nearest, order, 1)
    return found


def save_map(path: Path, where: np.ndarray, labels: np.ndarray | None, names: Sequence[str] = ()) -> Path:
    """Draw places (N, 2) in 0..1 with a colour for each label and a legend: an .svg or .png file."""
    shown = np.zeros(len(where), int) if labels is None else labels
    classes = [int(label) for label in np.unique(shown)]
    known = dict(enumerate(map(printable, names))) | {-1: "no label"}
    legend = [] if labels is None else [(known.get(c, str(c)), colour(c)) for c in classes]
    if writable(path, MAPS, "a map").suffix == ".svg":
        write_text(path, _svg(where, shown, legend))
    else:
        write_atomically(path, lambda file: _png(file, where, shown, legend))
    return path


def colour(label: int) -> str:
    """Of a class."""
    return COLOURS[label % len(COLOURS)] if label >= 0 else "#999999"


def _svg(where: np.ndarray, labels: np.ndarray, legend: list[tuple[str, str]]) -> str:
    spots = "".join(
        f'<circle cx="{20 + x * (SIDE - 40):.1f}" cy="{20 + (1 - y) * (SIDE - 40):.1f}" r="3" fill="{colour(label)}"/>'
        for (x, y), label in zip(where.tolist(), labels.tolist(), strict=True)
    )
    words = "".join(
        f'<circle cx="{SIDE + 20}" cy="{30 + 22 * at}" r="6" fill="{fill}"/>'
        f'<text x="{SIDE + 34}" y="{35 + 22 * at}">{escape(name)}</text>'
        for at, (name, fill) in enumerate(legend)
    )
    size = f'width="{SIDE + 200}" height="{SIDE}" viewBox="0 0 {SIDE + 200} {SIDE}"'
    style = 'font-family="sans-serif" font-size="14" fill-opacity="0.8"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{spots}{words}</svg>\n'


def _png(file: BinaryIO, where: np.ndarray, labels: np.ndarray, legend: list[tuple[str, str]]) -> None:
    from PIL import Image, ImageDraw

    fine = 2  # drawn larger and made smaller, for smooth edges
    image = Image.new("RGB", ((SIDE + 200) * fine, SIDE * fine), "white")
    draw = ImageDraw.Draw(image)

    def spot(x: float, y: float, radius: float, fill: str) -> None:
        draw.ellipse([fine * (x - radius), fine * (y - radius), fine * (x + radius), fine * (y + radius)], fill=fill)

    for (x, y), label in zip(where.tolist(), labels.tolist(), strict=True):
        spot(20 + x * (SIDE - 40), 20 + (1 - y) * (SIDE - 40), 3, colour(label))
    for at, (name, fill) in enumerate(legend):
        spot(SIDE + 20, 30 + 22 * at, 6, fill)
        draw.text((fine * (SIDE + 34), fine * (22 + 22 * at)), name, fill="black", font_size=14 * fine)
    image.resize((SIDE + 200, SIDE), Image.Resampling.LANCZOS).save(file, "PNG")
