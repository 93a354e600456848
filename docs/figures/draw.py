"""Draws the figures of docs/how-it-works.md as SVG files: `python docs/figures/draw.py`.

The batch is four digits of scikit-learn, and each sample has the same color in every figure. The numbers in the figures
are computed here: similarities are cosines of centered pixels, which take the place of an encoder's features. The last
figure plots docs/results/byol-tenth.csv.
"""

import csv
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

FOLDER = Path(__file__).parent
BATCH = (3, 8, 0, 13)  # indices of the digits: a 3, an 8, a 0 and another 3
COLORS = ("#1769aa", "#c2500a", "#2e7d32", "#8e3b9e")  # of samples 1 to 4
TEXT, MUTED, BORDER, BACKGROUND = "#1f2328", "#57606a", "#c9ced4", "#fbfbf9"
WIDTH = 860
PARTNER, LAM = (1, 2, 3, 0), (0.7, 0.9, 0.6, 0.8)
TEMPERATURE = 0.2

DIGITS = load_digits().images / 16  # (1797, 8, 8), from 0 (background) to 1 (ink)
VIEW_1 = DIGITS[list(BATCH)]
VIEW_2 = (VIEW_1 + np.pad(VIEW_1, ((0, 0), (0, 0), (1, 0)))[:, :, :8]) / 2  # shifted right by half a pixel
LABELS = np.eye(4)  # virtual labels
MIXED_LABELS = np.stack(
    [lam * LABELS[i] + (1 - lam) * LABELS[j] for i, (j, lam) in enumerate(zip(PARTNER, LAM, strict=True))]
)


def main() -> None:
    """Write all figures."""
    figures = {
        "virtual-labels": similarity_tables("Every instance is its own class", LABELS),
        "mixed-virtual-labels": similarity_tables("Mixed instances and mixed virtual labels", MIXED_LABELS),
        "mixed-inputs": mixed_inputs(),
        "overview": overview(),
        "memorization": memorization(),
    }
    for name, svg in figures.items():
        path = FOLDER / f"{name}.svg"
        path.write_text(svg, encoding="utf-8")
        print(f"{path}: {len(svg) / 1000:.1f} kB")


def similarity_tables(title: str, labels: np.ndarray) -> str:
    """Three tables of anchors by keys: similarities, their softmax, and the virtual labels (4, 4)."""
    anchors = np.tensordot(labels, VIEW_1, 1)
    similarities = cosine_similarity(anchors, VIEW_2)
    softmax = softmax_rows(similarities)
    loss = -(labels * np.log(softmax)).sum(1)

    cell, row_height, top, left = 48, 54, 146, 158  # a cell is wide enough for −0.17 in DejaVu Sans
    table_x = [left, left + 4 * cell + 30, left + 8 * cell + 60]
    parts = []
    headings = ("similarity", "softmax", "virtual label")
    for x, heading, values in zip(table_x, headings, (similarities, softmax, labels), strict=True):
        parts.append(text(x + 2 * cell, 72, heading, 15, "middle", weight=600))
        for n in range(4):
            parts.append(digit(x + n * cell + 4, top - 62, 5, [VIEW_2[n]], [n]))
            parts.append(text(x + n * cell + 24, top - 6, f"key {n + 1}", 13, "middle", COLORS[n]))
        for i in range(4):
            for n in range(4):
                sample = n if values is labels else None
                parts.append(table_cell(x + n * cell, top + i * row_height, cell, row_height, values[i, n], sample))
    for i in range(4):
        y, samples = top + i * row_height, [n for n in np.argsort(-labels[i]) if labels[i, n] > 0]
        parts.append(digit(110, y + 7, 5, [labels[i, n] * VIEW_1[n] for n in samples], samples))
        if len(samples) == 1:
            parts.append(text(100, y + 31, f"anchor {i + 1}", 13, "end", COLORS[i]))
        else:
            for line, n in enumerate(samples):
                weight = f"{'+ ' if line else ''}{labels[i, n]:.1f} × #{n + 1}"
                parts.append(text(103, y + 23 + 17 * line, weight, 12, "end", COLORS[n]))
        parts.append(text(table_x[2] + 4 * cell + 32, y + 32, f"{loss[i]:.2f}", 14, "middle"))
    parts.append(text(table_x[2] + 4 * cell + 32, top - 6, "loss", 14, "middle", weight=600))
    for x in table_x[1:]:
        parts.append(arrow(x - 25, top + 108, x - 6, top + 108))
    notes = (
        f"similarity: cosine of anchor and key; softmax of similarity / temperature (here {TEMPERATURE})",
        "loss of an anchor: − sum over keys of virtual label × log softmax",
    )
    for line, note in enumerate(notes):
        parts.append(text(left, top + 4 * row_height + 28 + 20 * line, note, 13, fill=MUTED))
    return figure(430, title, parts)


def mixed_inputs() -> str:
    """MixUp and CutMix of a digit and its partner, with the mixing weight below each result."""
    side, left = 80, 170
    column_x = [left, left + 114, left + 284, left + 412, left + 540]
    parts = []
    anchor, partner = VIEW_1[0], VIEW_1[1]
    for row, (name, description) in enumerate((("MixUp", "blends all pixels"), ("CutMix", "pastes a box"))):
        y = 84 + row * 150
        parts.append(text(24, y + 38, name, 16, weight=600))
        parts.append(text(24, y + 57, description, 14, fill=MUTED))
        for x, image, n, caption in ((column_x[0], anchor, 0, "anchor, #1"), (column_x[1], partner, 1, "partner, #2")):
            parts.append(digit(x, y, 10, [image], [n]))
            parts.append(text(x + side / 2, y + side + 30, caption, 14, "middle", COLORS[n]))
        parts.append(arrow(column_x[1] + side + 20, y + 40, column_x[2] - 20, y + 40))
        for x, target_lam in zip(column_x[2:], (0.9, 0.7, 0.5), strict=True):
            keep, lam = np.full((8, 8), target_lam), target_lam
            if name == "CutMix":
                keep = np.ones((8, 8))
                box_side = int(8 * (1 - target_lam) ** 0.5)  # in whole pixels, so the area is only about 1 - lam
                start = 4 - box_side // 2
                keep[start : start + box_side, start : start + box_side] = 0
                lam = keep.mean()
            parts.append(digit(x, y, 10, [keep * anchor, (1 - keep) * partner], [0, 1]))
            if name == "CutMix":
                box = f'x="{x + 10 * start}" y="{y + 10 * start}" width="{10 * box_side}" height="{10 * box_side}"'
                parts.append(f'<rect {box} fill="none" stroke="{COLORS[1]}" stroke-width="1.5"/>')
            parts.append(weight_bar(x, y + side + 6, side, 6, lam, 0, 1))
            parts.append(text(x + side / 2, y + side + 30, f"λ = {lam:.2f}", 15, "middle"))
    return figure(372, "Mixed inputs and their mixing weight λ", parts)


def overview() -> str:
    """One training step, from the batch to the loss."""
    parts: list[str] = []
    high, low, middle = 92, 226, 159

    def batch(x: float, y: float, name: str, images: list[list[np.ndarray]], samples: list[list[int]]) -> None:
        for i, (layers, layer_samples) in enumerate(zip(images, samples, strict=True)):
            parts.append(digit(x + i % 2 * 36, y + i // 2 * 36, 4, layers, layer_samples))
        parts.append(text(x + 34, y - 10, name, 14, "middle", weight=600))

    unmixed = [[n] for n in range(4)]
    batch(28, middle, "batch", [[image] for image in VIEW_1], unmixed)
    batch(154, high, "view 1", [[image] for image in VIEW_1], unmixed)
    batch(154, low, "view 2", [[image] for image in VIEW_2], unmixed)
    mixed = [[LAM[i] * VIEW_1[i], (1 - LAM[i]) * VIEW_1[PARTNER[i]]] for i in range(4)]
    batch(292, high, "mixed anchors", mixed, [[i, PARTNER[i]] for i in range(4)])
    parts += [arrow(104, middle + 22, 146, high + 44), arrow(104, middle + 46, 146, low + 24)]
    parts += [arrow(230, high + 34, 284, high + 34), text(257, high + 26, "mix", 14, "middle", MUTED)]
    parts += [arrow(368, high + 34, 412, high + 34), arrow(230, low + 34, 412, low + 34)]
    parts.append(text(321, low + 26, "keys (not mixed)", 14, "middle", MUTED))

    parts.append(f'<rect x="420" y="{high - 8}" width="84" height="218" rx="8" fill="#e8edf2" stroke="{BORDER}"/>')
    parts.append(text(462, middle + 30, "encoder", 14, "middle", weight=600))
    parts.append(text(462, middle + 48, "and head", 14, "middle", weight=600))

    cell = 26
    softmax = softmax_rows(cosine_similarity(np.tensordot(MIXED_LABELS, VIEW_1, 1), VIEW_2))
    for x, y, name, values in ((566, low - 4, "softmax", softmax), (566, high - 18, "virtual labels", MIXED_LABELS)):
        parts.append(text(x + 2 * cell, y - 8, name, 14, "middle", weight=600))
        for i in range(4):
            for n in range(4):
                sample = n if values is MIXED_LABELS else None
                parts.append(table_cell(x + n * cell, y + i * cell, cell, cell, values[i, n], sample, show_value=False))
    parts += [arrow(510, low + 34, 556, low + 34), text(533, low + 26, "s / τ", 14, "middle", MUTED)]
    path = f"M257 {high + 9}V58H540V{high + 38}H556"
    parts.append(f'<path d="{path}" fill="none" stroke="{MUTED}" stroke-width="1.5" marker-end="url(#head)"/>')
    parts.append(text(400, 52, "same partners and λ", 14, "middle", MUTED))
    parts += [arrow(680, high + 38, 716, middle + 16), arrow(680, low + 34, 716, middle + 52)]
    parts.append(f'<rect x="722" y="{middle}" width="96" height="68" rx="8" fill="#e8edf2" stroke="{BORDER}"/>')
    parts.append(text(770, middle + 31, "cross-", 15, "middle", weight=600))
    parts.append(text(770, middle + 49, "entropy", 15, "middle", weight=600))
    return figure(352, "One training step with i-Mix", parts)


def memorization() -> str:
    """Loss and nearest neighbors during training, with and without i-Mix."""
    with open(FOLDER.parent / "results" / "byol-tenth.csv", encoding="utf-8", newline="") as file:
        epochs, *curves = np.array(list(csv.reader(file))[1:], dtype=float).T
    width, height, top = 340, 220, 96
    ticks = (0, 0.2, 0.4, 0.6, 0.8)
    panels = (
        (64, "training loss", curves[:2], "{:.1f}"),
        (478, "nearest neighbor has the same class", curves[2:], "{:.0%}"),
    )
    parts = []
    for left, name, panel_curves, tick_format in panels:
        parts.append(text(left, top - 22, name, 15, weight=600))
        for tick in ticks:
            y = top + height * (1 - tick / ticks[-1])
            parts.append(f'<line x1="{left}" y1="{y:g}" x2="{left + width}" y2="{y:g}" stroke="{BORDER}"/>')
            parts.append(text(left - 8, y + 5, tick_format.format(tick), 13, "end", MUTED))
        for epoch in (0, 500, 1000, 1500, 2000):
            parts.append(text(left + width * epoch / 2000, top + height + 20, f"{epoch:,}", 13, "middle", MUTED))
        for curve, color, label in zip(panel_curves, COLORS[1::-1], ("BYOL", "BYOL + i-Mix"), strict=True):
            xs, ys = left + width * epochs / 2000, top + height * (1 - curve / ticks[-1])
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
            parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2.5"/>')
            parts.append(text(left + width, ys[-12:].min() - 9, label, 14, "end", color, weight=600))
        parts.append(text(left + width / 2, top + height + 42, "epoch", 13, "middle", MUTED))
    return figure(376, "BYOL on 5,000 images for 2,000 epochs", parts)


def cosine_similarity(anchors: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Cosine similarities (n, k) of images, minus the mean of all digits."""
    centered = [(x - DIGITS.mean(0)).reshape(len(x), -1) for x in (anchors, keys)]
    q, k = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in centered)
    return q @ k.T


def softmax_rows(similarities: np.ndarray) -> np.ndarray:
    """Softmax of similarities / temperature over the keys, (n, k)."""
    exponentials = np.exp(similarities / TEMPERATURE)
    return exponentials / exponentials.sum(1, keepdims=True)


def digit(x: float, y: float, pixel: int, layers: list[np.ndarray], samples: list[int]) -> str:
    """Images (8, 8) on top of each other on white, each in the color of its sample."""
    side, pixels = 8 * pixel, np.full((8, 8, 3), 255.0)
    for layer, sample in zip(layers, samples, strict=True):
        pixels -= layer[..., None] * (255 - rgb(COLORS[sample]))
    paths: dict[str, str] = {}
    for row, column in np.ndindex(8, 8):
        color = hex_color(pixels[row, column].clip(0, 255))
        paths[color] = paths.get(color, "") + f"M{column * pixel} {row * pixel}h{pixel}v{pixel}h-{pixel}z"
    paths.pop("#ffffff", None)
    filled = "".join(f'<path fill="{color}" d="{path}"/>' for color, path in paths.items())
    white = f'<rect width="{side}" height="{side}" fill="#fff"/>'
    edge = f'<rect x="-.5" y="-.5" width="{side + 1}" height="{side + 1}" fill="none" stroke="{BORDER}"/>'
    return f'<g transform="translate({x:g} {y:g})"><g shape-rendering="crispEdges">{white}{filled}</g>{edge}</g>'


def table_cell(
    x: float, y: float, width: int, height: int, value: float, sample: int | None, *, show_value: bool = True
) -> str:
    """A cell of a table: darker for larger values, in the color of `sample` if it is given."""
    base = rgb("#44505c" if sample is None else COLORS[sample])
    shade = max(0.0, value) * (0.75 if sample is None else 1)
    fill = hex_color(255 - shade * (255 - base))
    box = f'<rect x="{x:g}" y="{y:g}" width="{width}" height="{height}" fill="{fill}" stroke="{BORDER}"/>'
    if not show_value:
        return box
    digits = 2 if sample is None else 0 if value in (0, 1) else 1
    color = MUTED if value == 0 else max("#ffffff", TEXT, key=lambda color: contrast(color, fill))
    return box + text(x + width / 2, y + height / 2 + 5, f"{value:.{digits}f}".replace("-", "−"), 13, "middle", color)


def weight_bar(x: float, y: float, width: int, height: int, lam: float, sample: int, partner: int) -> str:
    """A horizontal bar: lam in the color of the sample, the rest in that of its partner."""
    background = f'<rect x="{x:g}" y="{y:g}" width="{width}" height="{height}" fill="{COLORS[partner]}"/>'
    return background + f'<rect x="{x:g}" y="{y:g}" width="{lam * width:g}" height="{height}" fill="{COLORS[sample]}"/>'


def arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    """A straight arrow."""
    ends = f'x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}"'
    return f'<line {ends} stroke="{MUTED}" stroke-width="1.5" marker-end="url(#head)"/>'


def text(
    x: float, y: float, words: str, size: int, anchor: str = "start", fill: str = TEXT, *, weight: int = 400
) -> str:
    """Text with its baseline at y."""
    style = f'font-size="{size}" font-weight="{weight}" fill="{fill}" text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{words}</text>'


def rgb(color: str) -> np.ndarray:
    """Red, green and blue of a hex color, 0 to 255."""
    return np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)], dtype=float)


def hex_color(values: np.ndarray) -> str:
    """The hex color of red, green and blue."""
    return "#" + "".join(f"{round(value):02x}" for value in values)


def contrast(color: str, other: str) -> float:
    """Contrast ratio of two colors, from 1 to 21, as defined by the Web Content Accessibility Guidelines."""
    linear = [
        np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
        for part in (rgb(color) / 255, rgb(other) / 255)
    ]
    dark, light = sorted(float(part @ (0.2126, 0.7152, 0.0722)) for part in linear)
    return (light + 0.05) / (dark + 0.05)


def figure(height: int, title: str, parts: list[str]) -> str:
    """An SVG document with its own light background, so that it is readable in dark mode too."""
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    arrow_head = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 .5 8 4 0 7.5z" fill="{MUTED}"/></marker>'
    )
    background = (
        f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="12" fill="{BACKGROUND}" stroke="{BORDER}"/>'
    )
    body = "\n".join([background, text(24, 38, title, 18, weight=600), *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif">\n'
        f"<title>{title}</title>\n<defs>{arrow_head}</defs>\n{body}\n</svg>\n"
    )


if __name__ == "__main__":
    main()
