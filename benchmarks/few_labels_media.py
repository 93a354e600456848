"""Few labels for images and audio: features learned without labels, inputs, and networks trained from scratch.

    python benchmarks/few_labels_media.py --cifar10 DIR --speech DIR --out few_labels_media.csv
    python benchmarks/few_labels_media.py --cifar10 DIR --limit 300 --encoder small --epochs 1 --scratch-epochs 1

The folders are the `data_dir` of cifar10 and speech_commands; the classes of Speech Commands are its 30 words. Of each
class, 50 images or 10 clips have a label, drawn three times. Pretraining uses all training samples, without labels. All
rows use the same draws of labels and all test samples:

- inputs, linear: pixels or mel spectrograms
- from scratch: the encoder and a linear layer, trained with the labels alone and the augmentations of pretraining, for
  each of the given numbers of epochs
- features, linear: N-pair without mixing (none) and with i-Mix (mixup), frozen; also with all labels
- fine-tuned: `imix.finetune` from these encoders

Each result is one line of the CSV file. Results that the file already contains are not measured again. Processes that
run at the same time, such as `--mix none` and `--mix mixup`, need separate files.
"""

import argparse
import csv
import itertools
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from timing import format_table
from torch import nn

import imix
from imix.data import Data
from imix.encoders import temporarily_on
from imix.methods import Supervised
from imix.probes.features import EncodedSource
from imix.run import Run
from imix.run.classifier import Classifier
from imix.runtime.device import pick_device

FIELDS = ("data", "row", "mix", "epochs", "seed", "draw", "labels_per_class", "accuracy", "seconds")
KEY = FIELDS[:-2]  # identifies a line
SCRATCH_BATCH = 50
# As in the short recipes of `imix reproduce`.
SETTINGS: dict[str, dict[str, Any]] = {
    "cifar10": {"weight_decay": 5e-4},
    "speech": {"weight_decay": 1e-3, "temperature": 0.5},
}


def load_cifar10(folder: str) -> Data:
    """Load CIFAR-10."""
    return imix.data.load("cifar10", imix.DataSettings(data_dir=folder))


def load_speech(folder: str) -> Data:
    """Load Speech Commands with its words as classes, without the silent clips that the paper adds."""
    data = imix.data.load("speech_commands", imix.DataSettings(data_dir=folder))
    assert data.test is not None
    words = np.array([Path(name).parent.name for name in data.sample_names])  # empty for silent clips
    class_names, labels = np.unique(words[words != ""], return_inverse=True)
    train = data.train.take(torch.from_numpy(np.flatnonzero(words[: len(data.train)])))
    train.labels, data.test.labels = torch.from_numpy(labels).split([len(train), len(data.test)])
    return replace(data, train=train, class_names=class_names.tolist(), sample_names=())


def limited(data: Data, n: int) -> Data:
    """Keep n training and n test samples, evenly spaced."""
    assert data.test is not None
    train, test = (source.take(torch.arange(n) * len(source) // n) for source in (data.train, data.test))
    return replace(data, train=train, test=test)


def draw_labels(data: Data, n: int, draw: int) -> Data:
    """Keep n random training samples of each class; the test samples stay."""
    generator, labels = torch.Generator().manual_seed(draw), data.train.labels
    assert labels is not None
    order = torch.randperm(len(labels), generator=generator)
    rows = torch.cat([order[labels[order] == label][:n] for label in labels.unique()])
    return replace(data, train=data.train.take(rows))


def train_from_scratch(data: Data, **settings: Any) -> tuple[Run, nn.Linear]:
    """Train encoder and classifier on labeled data, and return both."""
    learners = []

    def supervised(encoder: nn.Module, mix: Any, width: int) -> Supervised:
        learners.append(Supervised(encoder, mix, n_classes=data.n_classes, width=width))
        return learners[0]

    run = imix.pretrain(data, method=supervised, batch_size=SCRATCH_BATCH, cuda_graph=True, progress=False, **settings)
    return run, learners[0].classifier.cpu()


def accuracy(run: Run, head: nn.Linear | None, data: Data) -> float:
    """Return the accuracy of an encoder with a linear head on the test samples."""
    assert head is not None
    assert data.test is not None
    assert data.test.labels is not None
    device, model = pick_device("auto"), Classifier(run.encoder, head, include_inputs=False)
    with temporarily_on(device, model):
        predicted = EncodedSource(model, data.test, device).features().argmax(1).cpu()
    return float((predicted == data.test.labels).double().mean())


class Results:
    """The lines of a CSV file, each written as soon as it is measured."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = list(csv.DictReader(path.open())) if path.exists() else []

    def measure(self, function: Callable[[], float], *key: Any) -> None:
        """Call `function`, which returns an accuracy, and write the line, unless the file already contains it."""
        line = {name: str(value) for name, value in zip(KEY, key, strict=True)}
        if any(line.items() <= done.items() for done in self.lines):
            return
        start = time.monotonic()
        value = function()
        line |= {"accuracy": f"{100 * value:.2f}", "seconds": f"{time.monotonic() - start:.1f}"}
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            if not self.lines:
                writer.writeheader()
            writer.writerow(line)
        self.lines.append(line)
        print(*line.values(), sep=", ", flush=True)

    def print_means(self) -> None:
        """Print mean and standard deviation over draws and seeds."""
        values = defaultdict(list)
        for line in self.lines:
            row = tuple(line[name] for name in ("data", "labels_per_class", "row", "mix", "epochs"))
            values[row].append(float(line["accuracy"]))
        cells = [
            [*row, f"{mean(v):.1f} ± {stdev(v):.1f}" if len(v) > 1 else f"{v[0]:.1f}"]
            for row, v in sorted(values.items())
        ]
        print(format_table(["data", "labels per class", "row", "mix", "epochs", "accuracy"], cells))


@dataclass(frozen=True)
class Benchmark:
    """The measurements on one data set; `few` has the labeled samples of each draw."""

    name: str
    data: Data
    few: list[Data]
    n_labels: int
    encoder: str
    results: Results

    def settings(self, mix: str, epochs: int, seed: int) -> dict[str, Any]:
        """Return the settings that pretraining and training from scratch have in common."""
        return SETTINGS[self.name] | {"encoder": self.encoder, "mix": mix, "epochs": epochs, "seed": seed}

    def scratch(self, mix: str, epochs: int, seed: int) -> None:
        """Measure networks trained from scratch."""

        def from_scratch(few: Data) -> float:
            return accuracy(*train_from_scratch(few, **self.settings(mix, epochs, seed)), few)

        for draw, few in enumerate(self.few):
            key = (self.name, "from scratch", mix, epochs, seed, draw, self.n_labels)
            self.results.measure(partial(from_scratch, few), *key)

    def pretrained(self, mix: str, epochs: int, seed: int, runs: Path | None) -> None:
        """Measure an encoder trained on all samples without labels, frozen and fine-tuned."""
        folder = None if runs is None else runs / f"{self.name}-{self.encoder}-{mix}-{epochs}-{seed}"

        @cache  # trains only if there is something to measure
        def run() -> Run:
            settings = self.settings(mix, epochs, seed)
            return imix.pretrain(self.data, out=folder, resume=folder is not None, progress=False, **settings)

        def linear(data: Data, inputs: bool = False) -> float:
            return imix.evaluate(run(), data, "linear", inputs=inputs).accuracy

        def fine_tuned(few: Data, draw: int) -> float:
            tuned = imix.finetune(run(), few, seed=draw)
            return accuracy(tuned, tuned.head, few)

        measure, condition = self.results.measure, (mix, epochs, seed)
        measure(partial(linear, self.data), self.name, "features, linear", *condition, 0, "all")
        for draw, few in enumerate(self.few):
            measure(partial(linear, few), self.name, "features, linear", *condition, draw, self.n_labels)
            if mix == "none":  # the inputs are the same for all encoders
                measure(partial(linear, few, True), self.name, "inputs, linear", "", "", seed, draw, self.n_labels)
        for draw, few in enumerate(self.few):
            measure(partial(fine_tuned, few, draw), self.name, "fine-tuned", *condition, draw, self.n_labels)


def main() -> None:
    """Measure what is missing in the CSV file, and print means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar10", help="folder with cifar10.npz or the original CIFAR-10 files")
    parser.add_argument("--speech", help="folder of speech_commands_v0.01")
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--epochs", type=int, default=200, help="epochs of pretraining")
    parser.add_argument("--scratch-epochs", type=int, nargs="*", default=[100, 300, 1000])
    parser.add_argument("--mix", nargs="+", default=["none", "mixup"])
    parser.add_argument("--no-pretraining", action="store_true", help="only train from scratch")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--image-labels", type=int, default=50, help="labels per class of CIFAR-10")
    parser.add_argument("--clip-labels", type=int, default=10, help="labels per class of Speech Commands")
    parser.add_argument("--limit", type=int, help="number of training samples and of test samples, for a quick test")
    parser.add_argument("--runs", type=Path, help="folder of the pretrained runs; existing runs are resumed")
    parser.add_argument("--out", type=Path, default=Path("few_labels_media.csv"))
    args = parser.parse_args()
    results = Results(args.out)
    sets = [
        ("cifar10", load_cifar10, args.cifar10, args.image_labels),
        ("speech", load_speech, args.speech, args.clip_labels),
    ]
    for name, load, folder, n_labels in sets:
        if folder is None:
            continue
        data = load(folder) if args.limit is None else limited(load(folder), args.limit)
        few = [draw_labels(data, n_labels, draw) for draw in range(args.draws)]
        benchmark = Benchmark(name, data, few, n_labels, args.encoder, results)
        for seed, mix in itertools.product(range(args.seeds), args.mix):
            for epochs in args.scratch_epochs:
                benchmark.scratch(mix, epochs, seed)
            if not args.no_pretraining:
                benchmark.pretrained(mix, args.epochs, seed, args.runs)
    results.print_means()


if __name__ == "__main__":
    main()
