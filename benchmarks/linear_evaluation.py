"""Linear evaluation: seven learning rates in one pass, against seven runs one after another in plain PyTorch.

    python benchmarks/linear_evaluation.py                        # on the GPU, if there is one
    python benchmarks/linear_evaluation.py --device cpu --rows 5000 --features 512
    python benchmarks/linear_evaluation.py --device cpu --views --encoder small --images 256

The plain runs follow the paper's protocol: `nn.Linear`, `CrossEntropyLoss`, SGD with momentum 0.9, and a learning rate
that is multiplied by 0.2 after 80, 90 and 95 of 100 epochs. imix does twice as much: it also trains on 90% of the rows
to choose the learning rate without the test set. Both are reported: the full evaluation, and only the seven classifiers
on all rows.

With views (on a GPU, or with --views), every epoch encodes new pad-crop-flip views of all images: once in imix, once
per learning rate in the plain runs. The time of 100 epochs is then extrapolated from two shorter runs, since all epochs
take equally long.
"""

import argparse
import json
import statistics
from collections.abc import Callable

import torch
from timing import add_device_arguments, format_table, select_device, time_in_rounds, time_ratio
from torch import Tensor, nn

from imix.augment.image import PadCrop
from imix.batch import to_channels_last, to_float
from imix.data import TensorSource
from imix.encoders import build
from imix.probes.features import EncodedSource
from imix.probes.linear_paper import LinearClassifiers, LinearPaper, linear_paper
from imix.runtime.device import channels_last, cudnn_benchmark

VIEWS_TARGET = 7.0
PLAIN, IMIX, IMIX_PART = "seven plain runs", "imix, full evaluation", "imix, seven classifiers on all rows"
GetFeatures = Callable[[Tensor], Tensor]  # from row indices (n,) to features (n, F)


def train_plain(
    get_features: GetFeatures,
    labels: Tensor,
    width: int,
    classes: int,
    lr: float,
    protocol: LinearPaper,
    device: torch.device,
) -> nn.Linear:
    """Train a linear classifier with one learning rate, as usually written in PyTorch."""
    classifier = nn.Linear(width, classes).to(device)
    optimizer = torch.optim.SGD(classifier.parameters(), lr=lr, momentum=protocol.momentum)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(protocol.milestones), protocol.decay)
    criterion = nn.CrossEntropyLoss()
    for _ in range(protocol.epochs):
        for rows in torch.randperm(len(labels), device=device).split(protocol.batch_size):
            loss = criterion(classifier(get_features(rows)), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return classifier


@torch.no_grad()
def accuracy(classifier: nn.Linear, features: Tensor, labels: Tensor) -> float:
    """Return the accuracy of a classifier."""
    return float((classifier(features).argmax(1) == labels).double().mean())


def random_features(rows: int, width: int, classes: int, device: torch.device, seed: int) -> tuple[Tensor, Tensor]:
    """Return features and labels that a linear classifier can separate, but not perfectly."""
    centers = torch.randn(classes, width, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=generator)
    features = centers[labels] + 6 * torch.randn(rows, width, generator=generator)
    return nn.functional.normalize(features, dim=1).to(device), labels.to(device)


def plain_accuracies(
    get_features: GetFeatures, labels: Tensor, test: tuple[Tensor, Tensor], classes: int, protocol: LinearPaper
) -> dict[float, float]:
    """Return the test accuracy of each learning rate, trained one after another."""
    accuracies = {}
    for lr in protocol.lrs:
        classifier = train_plain(get_features, labels, test[0].shape[1], classes, lr, protocol, labels.device)
        accuracies[lr] = accuracy(classifier, *test)
    return accuracies


def print_times(case: dict[str, object], times: dict[str, list[float]]) -> list[list[object]]:
    """Print a line of JSON for each variant, and return the rows of a table."""
    rows: list[list[object]] = []
    for variant, seconds in times.items():
        speedup = time_ratio(times, PLAIN, variant)
        line = case | {"variant": variant, "seconds": round(statistics.median(seconds), 2)}
        line |= {"speedup": round(speedup.median, 2), "low": round(speedup.low, 2), "high": round(speedup.high, 2)}
        print(json.dumps(line), flush=True)
        rows.append([case["features"], variant, f"{statistics.median(seconds):.2f}", f"{speedup.median:.2f}"])
    return rows


def on_cached_features(
    rows: int, width: int, classes: int, device: torch.device, rounds: int, epochs: int
) -> list[list[object]]:
    """Compare on features that are computed once."""
    protocol = LinearPaper(
        epochs=epochs, milestones=tuple(epochs * percent // 100 for percent in LinearPaper().milestones)
    )
    sources = [TensorSource(*random_features(n, width, classes, device, seed)) for seed, n in ((1, rows), (2, 10_000))]
    train, test = (EncodedSource(nn.Identity(), source, device) for source in sources)
    features, labels, test_data = train.features(), train.labels(), (test.features(), test.labels())
    accuracies: dict[str, dict[float, float]] = {}

    def run_plain() -> None:
        accuracies["plain"] = plain_accuracies(lambda rows: features[rows], labels, test_data, classes, protocol)

    def run_imix() -> None:
        accuracies["imix"] = linear_paper(train, test, classes, protocol).by_lr

    def run_imix_classifiers() -> None:
        classifiers = LinearClassifiers(classes, protocol)
        for epoch in range(epochs):
            classifiers.train_epoch(features, labels, epoch)
        classifiers.accuracies([test_data])

    variants = {PLAIN: run_plain, IMIX: run_imix, IMIX_PART: run_imix_classifiers}
    case: dict[str, object] = {"features": "cached", "device": str(device)}
    case |= {"rows": rows, "width": width, "epochs": epochs}
    table_rows = print_times(case, time_in_rounds(variants, device, rounds, seconds=0.0))
    difference = max(abs(accuracies["plain"][lr] - accuracies["imix"][lr]) for lr in LinearPaper().lrs)
    mean = statistics.mean(accuracies["plain"].values())
    standard_error = (2 * mean * (1 - mean) / len(test_data[1])) ** 0.5  # of the difference of two accuracies
    comparison = {
        "accuracy by lr, plain": accuracies["plain"],
        "accuracy by lr, imix": accuracies["imix"],
        "maximum difference": round(difference, 4),
        "two standard errors": round(2 * standard_error, 4),
    }
    print(json.dumps(case | comparison), flush=True)
    return table_rows


def on_views(args: argparse.Namespace, device: torch.device) -> list[list[object]]:
    """Compare with new views of the images in every epoch."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (args.images, 3, 32, 32), generator=generator, dtype=torch.uint8)
    source = TensorSource(pixels.to(device), (torch.arange(args.images) % args.classes).to(device))
    encoder = channels_last(build(args.encoder, (3, 32, 32)).to(device)).eval()
    augment, bf16 = PadCrop(), device.type == "cuda"
    train = EncodedSource(encoder, source, device, augment, bf16)
    test = EncodedSource(encoder, source.take(torch.arange(args.images // 5, device=device)), device, bf16=bf16)

    def encode_views(rows: Tensor) -> Tensor:
        with torch.no_grad():
            x = to_channels_last(augment(to_float(source.inputs[rows])))
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                return encoder(x).float()

    def run_plain(protocol: LinearPaper) -> object:
        test_data = test.features(), test.labels()
        return plain_accuracies(encode_views, train.labels(), test_data, args.classes, protocol)

    short, long = (LinearPaper(epochs=epochs, milestones=()) for epochs in args.epochs)
    variants: dict[str, Callable[[], object]] = {
        "plain, short": lambda: run_plain(short),
        "plain, long": lambda: run_plain(long),
        "imix, short": lambda: linear_paper(train, test, args.classes, short),
        "imix, long": lambda: linear_paper(train, test, args.classes, long),
    }
    with cudnn_benchmark():
        for variant in ("plain, short", "imix, short"):
            variants[variant]()
        times = time_in_rounds(variants, device, args.rounds, seconds=0.0)
    extrapolated = {}
    for name, variant in ((PLAIN, "plain"), (IMIX, "imix")):
        pairs = zip(times[f"{variant}, short"], times[f"{variant}, long"], strict=True)
        remaining = (LinearPaper().epochs - long.epochs) / (long.epochs - short.epochs)
        extrapolated[name] = [after + remaining * (after - before) for before, after in pairs]
    case: dict[str, object] = {"features": "new views", "device": str(device), "images": args.images}
    case |= {"encoder": args.encoder, "measured epochs": args.epochs, "epochs": LinearPaper().epochs}
    speedup = time_ratio(extrapolated, PLAIN, IMIX).median
    rows = print_times(case, extrapolated)
    print(f"target with views, {VIEWS_TARGET:g} times as fast: {'met' if speedup >= VIEWS_TARGET else 'missed'}")
    return rows


def main() -> None:
    """Print a line of JSON for each variant, one for the accuracies, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_arguments(parser)
    parser.add_argument("--rows", type=int, help="cached features; default: 5,000 on a CPU, 50,000 on a GPU")
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--cached-epochs", type=int, default=100, help="epochs on cached features; time is proportional to them"
    )
    parser.add_argument("--views", action="store_true", help="also compare with views of images on a CPU")
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, nargs=2, default=(1, 4), help="lengths of the two runs with views")
    args = parser.parse_args()
    device = select_device(args)
    n_rows = args.rows or (50_000 if device.type == "cuda" else 5_000)
    rows = on_cached_features(n_rows, args.features, args.classes, device, args.rounds, args.cached_epochs)
    if device.type == "cpu" and not args.views:
        print("skipped the evaluation with views, which needs a GPU (--views runs it on the CPU)")
    else:
        rows += on_views(args, device)
    print(format_table(["features", "variant", "seconds", "speedup"], rows))


if __name__ == "__main__":
    main()
