"""The pictures of docs/idea.md, drawn from four digits of scikit-learn: `python docs/pictures/draw.py`.

Each instance of the batch has a colour of its own, in every picture. Numbers in the pictures are computed here:
similarities are cosines of the pixels less their mean, in the place of an encoder's features. The last picture is drawn
from docs/results/byol-tenth.csv.
"""

import csv
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

FOLDER = Path(__file__).parent
BATCH = (3, 8, 0, 13)  # rows of the digits: a 3, an 8, a 0 and another 3
COLOURS = ("#1769aa", "#c2500a", "#2e7d32", "#8e3b9e")  # of instances 1 to 4
INK, FAINT, LINE, PANEL = "#1f2328", "#57606a", "#c9ced4", "#fbfbf9"
PARTNER, LAM = (1, 2, 3, 0), (0.7, 0.9, 0.6, 0.8)
TAU = 0.2

DIGITS = load_digits().images / 16  # (1797, 8, 8), ink from 0 to 1
VIEW_1 = DIGITS[list(BATCH)]
VIEW_2 = (VIEW_1 + np.pad(VIEW_1, ((0, 0), (0, 0), (1, 0)))[:, :, :8]) / 2  # moved to the right by half a pixel
LABELS = np.eye(4)  # the virtual labels
MIXED = np.stack([lam * LABELS[i] + (1 - lam) * LABELS[j] for i, (j, lam) in enumerate(zip(PARTNER, LAM, strict=True))])


def main() -> None:
    """Write every picture."""
    for name, drawn in {
        "virtual-labels": tables("Every instance is its own class", LABELS),
        "mixed-virtual-labels": tables("Instances and virtual labels, mixed alike", MIXED),
        "mixed-inputs": mixed_inputs(),
        "overview": overview(),
        "by-heart": by_heart(),
    }.items():
        path = FOLDER / f"{name}.svg"
        path.write_text(drawn, encoding="utf-8")
        print(f"{path}: {len(drawn) / 1000:.1f} kB")


def tables(title: str, labels: np.ndarray) -> str:
    """Anchors by keys, three times: similarities, their softmax, and the virtual labels (4, 4) it is compared with."""
    anchors = np.tensordot(labels, VIEW_1, 1)
    similar = cosines(anchors, VIEW_2)
    softmax = softmax_of(similar)
    loss = -(labels * np.log(softmax)).sum(1)

    cell, top, left = 48, 146, 158  # wide enough for −0.17 in DejaVu Sans
    places = [left, left + 4 * cell + 30, left + 8 * cell + 60]
    parts = []
    heads = ("similarity", "softmax", "virtual label")
    for x, head, values in zip(places, heads, (similar, softmax, labels), strict=True):
        parts.append(text(x + 2 * cell, 72, head, 15, "middle", weight=600))
        for n in range(4):
            parts.append(digit(x + n * cell + 4, top - 62, 5, [VIEW_2[n]], [n]))
            parts.append(text(x + n * cell + 24, top - 6, f"key {n + 1}", 13, "middle", COLOURS[n]))
        for i in range(4):
            for n in range(4):
                at = x + n * cell, top + i * 54
                parts.append(square(*at, cell, 54, values[i, n], n if values is labels else None))
    for i in range(4):
        y, own = top + i * 54, [n for n in np.argsort(-labels[i]) if labels[i, n] > 0]
        parts.append(digit(110, y + 7, 5, [labels[i, n] * VIEW_1[n] for n in own], own))
        if len(own) == 1:
            parts.append(text(100, y + 31, f"anchor {i + 1}", 13, "end", COLOURS[i]))
        else:
            for line, n in enumerate(own):
                share = f"{'+ ' if line else ''}{labels[i, n]:.1f} × no. {n + 1}"
                parts.append(text(103, y + 23 + 17 * line, share, 12, "end", COLOURS[n]))
        parts.append(text(places[2] + 4 * cell + 32, y + 32, f"{loss[i]:.2f}", 14, "middle"))
    parts.append(text(places[2] + 4 * cell + 32, top - 6, "loss", 14, "middle", weight=600))
    for x in places[1:]:
        parts.append(arrow(x - 25, top + 108, x - 6, top + 108))
    feet = (
        f"similarity = cosine of anchor and key; softmax of similarities / {TAU}, the temperature",
        "loss of an anchor = − sum over keys of virtual label × log softmax",
    )
    for line, foot in enumerate(feet):
        parts.append(text(left, top + 4 * 54 + 28 + 20 * line, foot, 13, fill=FAINT))
    return picture(430, title, parts)


def mixed_inputs() -> str:
    """A digit and a partner, blended and cut, with the label of each below."""
    side, left = 80, 170
    places = [left, left + 114, left + 284, left + 412, left + 540]
    parts = []
    one, other = VIEW_1[0], VIEW_1[1]
    for row, name in enumerate(("MixUp", "CutMix")):
        y = 84 + row * 150
        parts.append(text(24, y + 38, name, 16, weight=600))
        parts.append(text(24, y + 57, ("all pixels blended", "a box pasted")[row], 14, fill=FAINT))
        for x, image, n in ((places[0], one, 0), (places[1], other, 1)):
            parts.append(digit(x, y, 10, [image], [n]))
            parts.append(text(x + side / 2, y + side + 30, ("no. 1", "partner, no. 2")[n], 14, "middle", COLOURS[n]))
        parts.append(arrow(places[1] + side + 20, y + 40, places[2] - 20, y + 40))
        for x, drawn in zip(places[2:], (0.9, 0.7, 0.5), strict=True):
            keep, lam = np.full((8, 8), drawn), drawn
            if row == 1:
                keep = np.ones((8, 8))
                cut = int(8 * (1 - drawn) ** 0.5)  # sides whose area is 1 - lam, in whole pixels
                start = 4 - cut // 2
                keep[start : start + cut, start : start + cut] = 0
                lam = keep.mean()
            parts.append(digit(x, y, 10, [keep * one, (1 - keep) * other], [0, 1]))
            if row == 1:
                box = f'x="{x + 10 * start}" y="{y + 10 * start}" width="{10 * cut}" height="{10 * cut}"'
                parts.append(f'<rect {box} fill="none" stroke="{COLOURS[1]}" stroke-width="1.5"/>')
            parts.append(bar(x, y + side + 6, side, 6, lam, 0, 1))
            parts.append(text(x + side / 2, y + side + 30, f"λ = {lam:.2f}", 15, "middle"))
    return picture(372, "Mixed inputs, and how much of whom is in them", parts)


def overview() -> str:
    """From a batch to a loss."""
    parts: list[str] = []
    high, low, middle = 92, 226, 159

    def batch(x: float, y: float, name: str, images: list[list[np.ndarray]], owners: list[list[int]]) -> None:
        for i, (layers, owner) in enumerate(zip(images, owners, strict=True)):
            parts.append(digit(x + i % 2 * 36, y + i // 2 * 36, 4, layers, owner))
        parts.append(text(x + 34, y - 10, name, 14, "middle", weight=600))

    alone = [[n] for n in range(4)]
    batch(28, middle, "batch", [[image] for image in VIEW_1], alone)
    batch(154, high, "view 1", [[image] for image in VIEW_1], alone)
    batch(154, low, "view 2", [[image] for image in VIEW_2], alone)
    mixed = [[LAM[i] * VIEW_1[i], (1 - LAM[i]) * VIEW_1[PARTNER[i]]] for i in range(4)]
    batch(292, high, "anchors, mixed", mixed, [[i, PARTNER[i]] for i in range(4)])
    parts += [arrow(104, middle + 22, 146, high + 44), arrow(104, middle + 46, 146, low + 24)]
    parts += [arrow(230, high + 34, 284, high + 34), text(257, high + 26, "mix", 14, "middle", FAINT)]
    parts += [arrow(368, high + 34, 412, high + 34), arrow(230, low + 34, 412, low + 34)]
    parts.append(text(321, low + 26, "keys, clean", 14, "middle", FAINT))

    parts.append(f'<rect x="420" y="{high - 8}" width="84" height="218" rx="8" fill="#e8edf2" stroke="{LINE}"/>')
    parts.append(text(462, middle + 30, "encoder", 14, "middle", weight=600))
    parts.append(text(462, middle + 48, "and head", 14, "middle", weight=600))

    cell = 26
    softmax = softmax_of(cosines(np.tensordot(MIXED, VIEW_1, 1), VIEW_2))
    for x, y, name, values in ((566, low - 4, "softmax", softmax), (566, high - 18, "virtual labels", MIXED)):
        parts.append(text(x + 2 * cell, y - 8, name, 14, "middle", weight=600))
        for i in range(4):
            for n in range(4):
                owner = n if values is MIXED else None
                parts.append(square(x + n * cell, y + i * cell, cell, cell, values[i, n], owner, small=True))
    parts += [arrow(510, low + 34, 556, low + 34), text(533, low + 26, "s / τ", 14, "middle", FAINT)]
    over = f"M257 {high + 9}V58H540V{high + 38}H556"
    parts.append(f'<path d="{over}" fill="none" stroke="{FAINT}" stroke-width="1.5" marker-end="url(#head)"/>')
    parts.append(text(400, 52, "the same partner and λ", 14, "middle", FAINT))
    parts += [arrow(680, high + 38, 716, middle + 16), arrow(680, low + 34, 716, middle + 52)]
    parts.append(f'<rect x="722" y="{middle}" width="96" height="68" rx="8" fill="#e8edf2" stroke="{LINE}"/>')
    parts.append(text(770, middle + 31, "cross-", 15, "middle", weight=600))
    parts.append(text(770, middle + 49, "entropy", 15, "middle", weight=600))
    return picture(352, "One step of i-Mix", parts)


def by_heart() -> str:
    """Loss and neighbours in the course of a training, without and with i-Mix."""
    with open(FOLDER.parent / "results" / "byol-tenth.csv", encoding="utf-8", newline="") as file:
        epochs, *curves = np.array(list(csv.reader(file))[1:], dtype=float).T
    width, height, top = 340, 220, 96
    panels = (
        (64, "loss", curves[:2], (0, 0.2, 0.4, 0.6, 0.8), "{:.1f}"),
        (478, "nearest neighbour of the same class", curves[2:], (0, 0.2, 0.4, 0.6, 0.8), "{:.0%}"),
    )
    parts = []
    for left, name, pair, ticks, shown in panels:
        parts.append(text(left, top - 22, name, 15, weight=600))
        for tick in ticks:
            y = top + height * (1 - tick / ticks[-1])
            parts.append(f'<line x1="{left}" y1="{y:g}" x2="{left + width}" y2="{y:g}" stroke="{LINE}"/>')
            parts.append(text(left - 8, y + 5, shown.format(tick), 13, "end", FAINT))
        for epoch in (0, 500, 1000, 1500, 2000):
            parts.append(text(left + width * epoch / 2000, top + height + 20, f"{epoch:,}", 13, "middle", FAINT))
        for curve, colour, called in zip(pair, COLOURS[1::-1], ("BYOL", "BYOL + i-Mix"), strict=True):
            xs, ys = left + width * epochs / 2000, top + height * (1 - curve / ticks[-1])
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
            parts.append(text(left + width, ys[-12:].min() - 9, called, 14, "end", colour, weight=600))
        parts.append(text(left + width / 2, top + height + 42, "epochs", 13, "middle", FAINT))
    return picture(376, "5,000 images, seen 2,000 times", parts)


def cosines(anchors: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Similarities (n, k) of images, less the mean of all digits."""
    unit = [(x - DIGITS.mean(0)).reshape(len(x), -1) for x in (anchors, keys)]
    q, k = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in unit)
    return q @ k.T


def softmax_of(similar: np.ndarray) -> np.ndarray:
    """What share of an anchor each key gets, (n, k)."""
    exponents = np.exp(similar / TAU)
    return exponents / exponents.sum(1, keepdims=True)


def digit(x: float, y: float, pixel: int, layers: list[np.ndarray], owners: list[int]) -> str:
    """Images (8, 8) laid over each other on white, each in its owner's colour."""
    side, paper = 8 * pixel, np.full((8, 8, 3), 255.0)
    for layer, owner in zip(layers, owners, strict=True):
        paper -= layer[..., None] * (255 - rgb(COLOURS[owner]))
    cells: dict[str, str] = {}
    for row, column in np.ndindex(8, 8):
        colour = "#" + "".join(f"{round(value):02x}" for value in paper[row, column].clip(0, 255))
        cells[colour] = cells.get(colour, "") + f"M{column * pixel} {row * pixel}h{pixel}v{pixel}h-{pixel}z"
    cells.pop("#ffffff", None)
    drawn = "".join(f'<path fill="{colour}" d="{path}"/>' for colour, path in cells.items())
    frame = f'<rect width="{side}" height="{side}" fill="#fff"/>'
    edge = f'<rect x="-.5" y="-.5" width="{side + 1}" height="{side + 1}" fill="none" stroke="{LINE}"/>'
    return f'<g transform="translate({x:g} {y:g})"><g shape-rendering="crispEdges">{frame}{drawn}</g>{edge}</g>'


def square(x: float, y: float, width: int, height: int, value: float, owner: int | None, *, small: bool = False) -> str:
    """A cell of a table, the darker the larger its value; in the owner's colour where it has one."""
    base = rgb("#44505c" if owner is None else COLOURS[owner])
    shade = max(0.0, value) * (0.75 if owner is None else 1)
    fill = "#" + "".join(f"{round(255 - shade * (255 - part)):02x}" for part in base)
    box = f'<rect x="{x:g}" y="{y:g}" width="{width}" height="{height}" fill="{fill}" stroke="{LINE}"/>'
    if small:
        return box
    exact = owner is not None and value in (0, 1)
    shown = f"{value:.0f}" if exact else f"{value:.1f}" if owner is not None else f"{value:.2f}"
    ink = FAINT if value == 0 else max("#ffffff", INK, key=lambda ink: contrast(ink, fill))
    return box + text(x + width / 2, y + height / 2 + 5, shown.replace("-", "−"), 13, "middle", ink)


def bar(x: float, y: float, width: int, height: int, lam: float, one: int, other: int) -> str:
    """A label: lam of one instance, the rest of another."""
    whole = f'<rect x="{x:g}" y="{y:g}" width="{width}" height="{height}" fill="{COLOURS[other]}"/>'
    return whole + f'<rect x="{x:g}" y="{y:g}" width="{lam * width:g}" height="{height}" fill="{COLOURS[one]}"/>'


def arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    """A straight arrow."""
    ends = f'x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}"'
    return f'<line {ends} stroke="{FAINT}" stroke-width="1.5" marker-end="url(#head)"/>'


def text(
    x: float, y: float, words: str, size: int, anchor: str = "start", fill: str = INK, *, weight: int = 400
) -> str:
    """Words, with their baseline at y."""
    look = f'font-size="{size}" font-weight="{weight}" fill="{fill}" text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}" {look}>{words}</text>'


def rgb(colour: str) -> np.ndarray:
    """Red, green and blue, 0 to 255."""
    return np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)], dtype=float)


def contrast(one: str, other: str) -> float:
    """Of two colours, as the guidelines for accessible pages count it: from 1 to 21."""
    linear = [
        np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
        for part in (rgb(one) / 255, rgb(other) / 255)
    ]
    dark, light = sorted(float(part @ (0.2126, 0.7152, 0.0722)) for part in linear)
    return (light + 0.05) / (dark + 0.05)


def picture(height: int, title: str, parts: list[str]) -> str:
    """An SVG with a light panel of its own, so that it can be read on any page."""
    width = 860
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 .5 8 4 0 7.5z" fill="{FAINT}"/></marker>'
    )
    panel = f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="12" fill="{PANEL}" stroke="{LINE}"/>'
    body = "\n".join([panel, text(24, 38, title, 18, weight=600), *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif">\n'
        f"<title>{title}</title>\n<defs>{head}</defs>\n{body}\n</svg>\n"
    )


if __name__ == "__main__":
    main()
