"""Data exploration: planted duplicates, outliers and label errors are searched for, and the search is timed.

    python benchmarks/explore.py tables --data digits cifar10 covtype.csv --data-dir DIR --out explore.csv
    python benchmarks/explore.py scale --samples 1000000

`tables` measures, for the inputs and for features learned without mixing (none) and with i-Mix (mixup), on the first
`--limit` training samples:

- duplicates: recall and precision of planted copies: exact; of images JPEG and resized; of tables with noise of 1%
- label errors: AUROC of the ranking, with 5% of the labels replaced by another class
- clusters: agreement (NMI and ARI) of as many groups as there are classes with the classes
- select: test accuracy of a linear classifier on the features of 50, 100 and 200 chosen or random samples

Each result is one line of the CSV file. `scale` answers `similar` and `duplicates` for synthetic features of 128
dimensions, of which one in 200 is a copy; half of the copies have noise.
"""

import argparse
import csv
import io
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, roc_auc_score
from torch import Tensor

import imix
from imix.data import Data, TensorSource
from imix.explore.result import Answer
from imix.explore.samples import encode
from imix.probes.linear import fit_linear
from imix.run import Run

FIELDS = ("data", "features", "seed", "question", "measure", "value")
LABELS = (50, 100, 200)
COPIES = 100  # of each kind
Result = tuple[str, str, float]  # question, measure, value


def load(name: str, data_dir: str | None, limit: int) -> Data:
    """Load a data set, with up to `limit` training and test samples, drawn at random."""
    is_table = name.endswith(".csv")  # with the labels in a column y, and test rows in a second file
    test_file = name.replace(".csv", "_test.csv") if is_table else None
    label = "y" if is_table else None
    data = imix.data.load(name, imix.DataSettings(data_dir=data_dir, label=label, test=test_file))
    assert data.test is not None
    generator = torch.Generator().manual_seed(0)
    train, test = (
        source.take(torch.randperm(len(source), generator=generator)[:limit]) for source in (data.train, data.test)
    )
    return replace(data, train=train, test=test)


def inputs_of(data: Data) -> tuple[Tensor, Tensor]:
    """Return the training samples, which must be in memory, and their labels."""
    assert isinstance(data.train, TensorSource)
    assert data.train.labels is not None
    return data.train.inputs, data.train.labels


def with_train(data: Data, inputs: Tensor, labels: Tensor) -> Data:
    """Return the data with other training samples and without test samples."""
    return replace(data, train=TensorSource(inputs, labels), test=None)


def changed_copies(x: Tensor, data: Data, rng: np.random.Generator) -> dict[str, Tensor]:
    """Return changed versions of samples, by kind of change."""
    if x.dim() == 2:
        numeric = data.table.groups[0] if data.table is not None else x.shape[1]
        noise = 0.01 * x.std(0) * torch.from_numpy(rng.normal(size=x.shape)).float()
        noise[:, numeric:] = 0
        return {"noise": x + noise}
    if x.dtype != torch.uint8 or x.shape[1] != 3:
        return {}
    images = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in x]
    size = images[0].size
    smaller = (size[0] * 3 // 4, size[1] * 3 // 4)
    resized = [image.resize(smaller, Image.Resampling.BILINEAR).resize(size) for image in images]
    to_tensor: Callable[[Image.Image], Tensor] = lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1)  # noqa: E731
    return {
        "jpeg": torch.stack([to_tensor(jpeg(image)) for image in images]),
        "resized": torch.stack([*map(to_tensor, resized)]),
    }


def jpeg(image: Image.Image) -> Image.Image:
    """Return an image after compression with quality 60."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=60)
    return Image.open(file).convert("RGB")


def measure_duplicates(run: Run | None, data: Data, seed: int) -> Iterator[Result]:
    """Plant copies and measure how many are found."""
    x, y = inputs_of(data)
    rng = np.random.default_rng(seed)
    originals = torch.from_numpy(rng.permutation(len(x)))
    kinds = {"exact": x[originals[:COPIES]]}
    kinds |= changed_copies(x[originals[COPIES : 2 * COPIES]], data, rng)
    planted, start = dict[str, set[tuple[int, int]]](), len(x)
    for kind, copies in kinds.items():
        of = originals[:COPIES] if kind == "exact" else originals[COPIES : 2 * COPIES]
        planted[kind] = {(int(row), start + i) for i, row in enumerate(of)}
        start += len(copies)
    labels = torch.cat([y, *(y[originals[: len(copies)]] for copies in kinds.values())])
    frame = imix.duplicates(run, with_train(data, torch.cat([x, *kinds.values()]), labels)).frame
    found = set(map(tuple, np.sort(frame.select("row", "other_row").to_numpy(), 1).tolist()))
    for kind, pairs in planted.items():
        yield "duplicates", f"recall {kind}", len(found & pairs) / len(pairs)
    copies_of: dict[int, set[int]] = {}
    for first, copy in set().union(*planted.values()):
        copies_of.setdefault(first, {first}).add(copy)
    right = {(a, b) for group in copies_of.values() for a in group for b in group if a < b}
    yield "duplicates", "precision", len(found & right) / max(1, len(found))


def measure_label_errors(run: Run | None, data: Data, seed: int) -> Iterator[Result]:
    """Replace 5% of the labels and measure how well the ranking separates them."""
    x, y = inputs_of(data)
    rng = np.random.default_rng(seed)
    wrong = rng.choice(len(y), len(y) // 20, replace=False)
    labels = y.clone()
    labels[wrong] = (labels[wrong] + torch.from_numpy(rng.integers(1, data.n_classes, len(wrong)))) % data.n_classes
    p = imix.label_errors(run, with_train(data, x, labels), seed=seed).frame["p_label"].to_numpy()
    yield "label errors", "AUROC", float(roc_auc_score(np.isin(np.arange(len(y)), wrong), -p))


def measure_clusters(run: Run | None, data: Data, seed: int) -> Iterator[Result]:
    """Compare as many groups as there are classes with the classes."""
    x, y = inputs_of(data)
    group = imix.cluster(run, with_train(data, x, y), k=data.n_classes, seed=seed).frame["group"].to_numpy()
    yield "clusters", "NMI", float(normalized_mutual_info_score(y, group))
    yield "clusters", "ARI", float(adjusted_rand_score(y, group))


def measure_select(run: Run | None, data: Data, seed: int) -> Iterator[Result]:
    """Compare chosen with random samples as the labeled ones of a linear classifier."""
    x, y = inputs_of(data)
    assert data.test is not None
    assert data.test.labels is not None
    features = encode(run, data)
    mean, std = features[: len(x)].mean(0), features[: len(x)].std(0).clamp(min=1e-6)
    features = (features - mean) / std
    for n in LABELS:
        chosen = imix.select(run, with_train(data, x, y), n=n, seed=seed).frame["row"].to_numpy().copy()
        random = np.random.default_rng(seed).choice(len(x), n, replace=False)
        for name, rows in (("chosen", chosen), ("random", random)):
            model = fit_linear(features[rows][None], y[rows][None], data.n_classes)
            correct = model(features[len(x) :][None])[0].argmax(1) == data.test.labels
            yield "select", f"accuracy, {n} {name}", float(correct.double().mean())


MEASUREMENTS = (measure_duplicates, measure_label_errors, measure_clusters, measure_select)


def measure_tables(args: argparse.Namespace) -> None:
    """Measure all questions on all data sets, and append the results to the CSV file."""
    is_new = not args.out.exists()
    with open(args.out, "a", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([FIELDS] if is_new else [])
        for name in args.data:
            data = load(name, args.data_dir if name != "digits" else None, args.limit)
            for seed in range(args.seeds):
                for features in ("inputs", "none", "mixup"):
                    run = None
                    if features != "inputs":
                        options = {"mix": features, "epochs": args.epochs, "seed": seed, "device": args.device}
                        options["augment"] = "cifar" if (data.train.shape or ())[:-2] == (3,) else None
                        run = imix.pretrain(data, **options, progress=False)
                    for measure in MEASUREMENTS:
                        for question, quantity, value in measure(run, data, seed):
                            writer.writerow([name, features, seed, question, quantity, f"{value:.4f}"])
                            print(name, features, seed, question, quantity, f"{value:.4f}", flush=True)
                    file.flush()


def synthetic_features(n: int) -> tuple[np.ndarray, set[tuple[int, int]]]:
    """Return features (n, 128) of 2,000 groups with 16 dimensions each, and the pairs of planted copies."""
    generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)
    centers, bases = torch.randn(2000, 128, generator=generator), torch.randn(2000, 16, 128, generator=generator) / 4
    features = torch.empty(n, 128)
    for rows in torch.arange(n).split(50_000):
        group = torch.randint(2000, (len(rows),), generator=generator)
        within = torch.einsum("nd,ndf->nf", torch.randn(len(rows), 16, generator=generator), bases[group])
        features[rows] = centers[group] + 0.3 * within + 0.02 * torch.randn(len(rows), 128, generator=generator)
    x = features.numpy()
    n_copies = n // 200
    originals = rng.choice(n - n_copies, n_copies, replace=False)
    noise = 1e-3 * rng.normal(size=(n_copies, 128)) * (np.arange(n_copies) % 2)[:, None]
    x[-n_copies:] = x[originals] + noise.astype(np.float32)
    return x, {(int(row), n - n_copies + i) for i, row in enumerate(originals)}


def measure_scale(args: argparse.Namespace) -> None:
    """Time two questions about many samples."""
    x, planted = synthetic_features(args.samples)
    questions: dict[str, Callable[[], Answer]] = {
        "similar": lambda: imix.similar(None, x, k=10),
        "duplicates": lambda: imix.duplicates(None, x),
    }
    for name, ask in questions.items():
        wall, cpu = time.perf_counter(), time.process_time()
        answer = ask()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"{name}: {wall:.0f} s, {cpu:.0f} s of CPU time, peak memory {peak:.1f} GB")
        print(answer)
    found = set(map(tuple, np.sort(answer.frame.select("row", "other_row").to_numpy(), 1).tolist()))
    hits = len(found & planted)
    print(f"copies found: recall {hits / len(planted):.4f}, precision {hits / len(found):.4f}")


def main() -> None:
    """Run one of the benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    tables = commands.add_parser("tables")
    tables.add_argument("--data", nargs="+", default=["digits"])
    tables.add_argument("--data-dir")
    tables.add_argument("--limit", type=int, default=5000)
    tables.add_argument("--epochs", type=int, default=100)
    tables.add_argument("--seeds", type=int, default=5)
    tables.add_argument("--device", default="auto")
    tables.add_argument("--out", type=Path, required=True)
    tables.set_defaults(function=measure_tables)
    scale = commands.add_parser("scale")
    scale.add_argument("--samples", type=int, default=1_000_000)
    scale.set_defaults(function=measure_scale)
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    main()
