"""MoCo with i-Mix on a folder of images: pretrain, evaluate, embed.

    python examples/moco_on_a_folder.py                          # draws a small folder of patterns to work on
    python examples/moco_on_a_folder.py pictures/ --out runs/pictures --epochs 200

A folder may have class subfolders or not; pretraining does not look at them. Without a folder, 320 small pictures of
four patterns are drawn into a temporary folder, which is gone afterwards, and so is the run unless --out says where to
keep it. Where there are classes, prints the accuracy of a linear classifier and of nearest neighbours on the frozen
features, with a fifth of the pictures held out (--epochs 1 shows what next to no training gives); then, for a few
pictures, the three whose vectors are nearest. So short a run on so few pictures shows how, not how well; the patterns
were chosen so that something can be learned (in random colours, by which pictures are told apart, nothing is).
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import imix

PATTERNS = ("checks", "rings", "specks", "stripes")


def draw_patterns(folder: Path, each: int = 80, side: int = 24) -> None:
    """A subfolder of PNG files for each pattern."""
    rng = np.random.default_rng(0)
    for pattern in PATTERNS:
        (folder / pattern).mkdir(parents=True)
        for number in range(each):
            y, x = np.mgrid[:side, :side] - rng.uniform(0, side, size=(2, 1, 1))
            turn, pitch = rng.uniform(0, np.pi), rng.uniform(0.9, 1.6)
            u, v = pitch * (x * np.cos(turn) + y * np.sin(turn)), pitch * (y * np.cos(turn) - x * np.sin(turn))
            drawn = {
                "checks": np.sin(u) * np.sin(v),
                "rings": np.sin(np.hypot(u, v)),
                "specks": rng.normal(size=(side, side)),
                "stripes": np.sin(u),
            }[pattern]
            # Greys, since in random colours pictures are told apart by these alone, and patterns need not be learned.
            ink, paper = rng.uniform(140, 255), rng.uniform(0, 115)
            image = np.where(drawn[..., None] > 0, ink, paper) + rng.normal(scale=10, size=(side, side, 3))
            Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(folder / pattern / f"{number:03}.png")


def main() -> None:
    """Everything, in the folders that are given or in a temporary one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--epochs", type=int, default=15)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder, out = given.folder or Path(scratch) / "patterns", given.out or Path(scratch) / "run"
        if given.folder is None:
            draw_patterns(folder)

        pictures = imix.data.load(folder)  # a path would do in all that follows, and be read each time
        # So few steps are too few for the defaults: a key network that follows sooner, and a queue that is soon filled.
        settings = imix.Settings(method="moco", epochs=given.epochs, batch_size=64, momentum=0.99, queue=512, lr=0.25)
        run = imix.pretrain(pictures, settings, out=out, progress=given.folder is not None)

        if pictures.class_names:
            for protocol in ("linear", "knn"):
                print(f"{protocol}: {100 * imix.evaluate(run, pictures, protocol).accuracy:.1f} %")

        # The file has a row for each picture: f0, f1, ..., its name, and its class where there is one.
        vectors = imix.embed(run, pictures, out / "vectors.parquet")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        for row in range(0, len(vectors), max(1, len(vectors) // 4)):
            nearest = np.argsort(-vectors @ vectors[row])[1:4]
            print(*(os.path.relpath(pictures.names[at], folder) for at in (row, *nearest)), sep="  ")


if __name__ == "__main__":
    main()
