"""MoCo with i-Mix on a folder of images: pretrain, evaluate, embed.

    python examples/moco_on_a_folder.py                          # on a small folder of synthetic patterns
    python examples/moco_on_a_folder.py photos/ --out runs/photos --epochs 200

The folder may have class subfolders or not; pretraining does not use them. Without a folder, the script draws 320 small
images of four patterns into a temporary folder. That folder is deleted at the end, and so is the run, unless --out is
given. If there are classes, prints the accuracy of a linear classifier and of kNN on the frozen features, with a fifth
of the images held out (use --epochs 1 to see the accuracy with almost no training). Then prints the three nearest
neighbors of a few images. Such a short run on so few images shows how to use the library, not how good the method is.
The patterns are gray so that something can be learned: with random colors, color alone would identify an image.
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import imix

PATTERNS = ("checks", "rings", "specks", "stripes")


def draw_patterns(folder: Path, n_images: int = 80, side: int = 24) -> None:
    """Write a subfolder of PNG files for each pattern."""
    rng = np.random.default_rng(0)
    for pattern in PATTERNS:
        (folder / pattern).mkdir(parents=True)
        for number in range(n_images):
            y, x = np.mgrid[:side, :side] - rng.uniform(0, side, size=(2, 1, 1))
            angle, frequency = rng.uniform(0, np.pi), rng.uniform(0.9, 1.6)
            u = frequency * (x * np.cos(angle) + y * np.sin(angle))
            v = frequency * (y * np.cos(angle) - x * np.sin(angle))
            values = {
                "checks": np.sin(u) * np.sin(v),
                "rings": np.sin(np.hypot(u, v)),
                "specks": rng.normal(size=(side, side)),
                "stripes": np.sin(u),
            }[pattern]
            # Gray, because with random colors the encoder could identify images by color and ignore the pattern.
            foreground, background = rng.uniform(140, 255), rng.uniform(0, 115)
            image = np.where(values[..., None] > 0, foreground, background)
            image = image + rng.normal(scale=10, size=(side, side, 3))
            Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(folder / pattern / f"{number:03}.png")


def main() -> None:
    """Run all steps in the given folders or in a temporary one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--epochs", type=int, default=15)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, out = args.folder or Path(temporary) / "patterns", args.out or Path(temporary) / "run"
        if args.folder is None:
            draw_patterns(folder)

        images = imix.data.load(folder)  # the functions below also accept the path, but would read it each time
        # The defaults are for longer runs. For so few steps, use a smaller momentum and a shorter queue.
        settings = imix.Settings(method="moco", epochs=args.epochs, batch_size=64, momentum=0.99, queue=512, lr=0.25)
        run = imix.pretrain(images, settings, out=out, progress=args.folder is not None)

        if images.class_names:
            for protocol in ("linear", "knn"):
                print(f"{protocol}: {100 * imix.evaluate(run, images, protocol).accuracy:.1f}%")

        # The file has one row per image: f0, f1, ..., file name, and class if there is one.
        vectors = imix.embed(run, images, out / "vectors.parquet")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        for i in range(0, len(vectors), max(1, len(vectors) // 4)):
            nearest = np.argsort(-vectors @ vectors[i])[1:4]
            image, *neighbors = (os.path.relpath(images.sample_names[j], folder) for j in (i, *nearest))
            print(f"nearest neighbors of {image}: {', '.join(neighbors)}")


if __name__ == "__main__":
    main()
