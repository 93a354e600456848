"""Linear evaluation, seven learning rates in one pass, against seven runs one after another in plain PyTorch.

    python benchmarks/linear_evaluation.py                        # on the GPU where there is one
    python benchmarks/linear_evaluation.py --device cpu --rows 5000 --features 512
    python benchmarks/linear_evaluation.py --device cpu --views --encoder small --images 256

The plain runs do the paper's protocol: `nn.Linear`, `CrossEntropyLoss`, SGD with momentum 0.9, the rate times 0.2 after
80, 90 and 95 epochs of 100. imix's evaluation does twice as much: it also trains on nine tenths, to choose the rate
without the test set. Both numbers are given: the whole evaluation, and the seven classifiers on all rows alone.

With views (a GPU, or --views) every epoch encodes new pad-crop-flip views of all images, once for imix and once a rate
for the plain runs. A hundred epochs are reckoned there from two shorter lengths, since every epoch takes the same.
"""

import argparse
import json
import statistics
from collections.abc import Callable

import torch
from clock import add_device, ratio, table, take_device, taking_turns
from torch import Tensor, nn

from imix.augment.image import PadCrop
from imix.batch import as_floats, laid_out
from imix.data import Tensors
from imix.encoders import build
from imix.evaluation.features import Encoded
from imix.evaluation.linear import Classifiers, Linear, linear
from imix.train.device import channels_last, fastest_algorithms

VIEWS_TARGET = 7.0
Rows = Callable[[Tensor], Tensor]


def one_rate(
    x: Callable[[Tensor], Tensor],
    y: Tensor,
    width: int,
    classes: int,
    lr: float,
    protocol: Linear,
    device: torch.device,
) -> nn.Linear:
    """A linear classifier at one rate, as one writes it; `x` gives the features of rows."""
    classifier = nn.Linear(width, classes).to(device)
    optimizer = torch.optim.SGD(classifier.parameters(), lr=lr, momentum=protocol.momentum)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(protocol.milestones), protocol.decay)
    criterion = nn.CrossEntropyLoss()
    for _ in range(protocol.epochs):
        for rows in torch.randperm(len(y), device=device).split(protocol.batch_size):
            loss = criterion(classifier(x(rows)), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return classifier


@torch.no_grad()
def accuracy(classifier: nn.Linear, features: Tensor, labels: Tensor) -> float:
    """Of a classifier on test features."""
    return float((classifier(features).argmax(1) == labels).double().mean())


def clouds(rows: int, width: int, classes: int, device: torch.device, seed: int) -> tuple[Tensor, Tensor]:
    """Features that a linear classifier can tell apart, though not all of them."""
    centres = torch.randn(classes, width, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=generator)
    features = centres[labels] + 6 * torch.randn(rows, width, generator=generator)
    return nn.functional.normalize(features, dim=1).to(device), labels.to(device)


def plain_runs(
    rows_of: Rows, labels: Tensor, test: tuple[Tensor, Tensor], classes: int, how: Linear
) -> dict[float, float]:
    """Accuracy by rate of one run after another."""
    found = {}
    for lr in how.rates:
        classifier = one_rate(rows_of, labels, test[0].shape[1], classes, lr, how, labels.device)
        found[lr] = accuracy(classifier, *test)
    return found


def told(what: dict[str, object], times: dict[str, list[float]], plain: str) -> list[list[object]]:
    """A line of JSON for each way; gives the rows of a table."""
    lines: list[list[object]] = []
    for way, taken in times.items():
        found = ratio(times, plain, way)
        line = what | {"way": way, "seconds": round(statistics.median(taken), 2)}
        line |= {"times as fast as plain": round(found.median, 2), "from": round(found.low, 2)}
        print(json.dumps(line | {"to": round(found.high, 2)}), flush=True)
        lines.append([what["features"], way, f"{statistics.median(taken):.2f}", f"{found.median:.2f}"])
    return lines


def cached(rows: int, width: int, classes: int, device: torch.device, rounds: int, epochs: int) -> list[list[object]]:
    """On features that were made once."""
    how = Linear(epochs=epochs, milestones=tuple(epochs * share // 100 for share in Linear().milestones))
    sources = [Tensors(*clouds(n, width, classes, device, seed)) for seed, n in ((1, rows), (2, 10_000))]
    train, test = (Encoded(nn.Identity(), source, device) for source in sources)
    features, labels, known = train.features(), train.labels(), (test.features(), test.labels())
    last: dict[str, dict[float, float]] = {}

    def plain() -> None:
        last["plain"] = plain_runs(lambda at: features[at], labels, known, classes, how)

    def ours() -> None:
        last["imix"] = linear(train, test, classes, how).by_lr

    def seven() -> None:
        classifiers = Classifiers(classes, how)
        for epoch in range(epochs):
            classifiers.learn(features, labels, epoch)
        classifiers.accuracies([known])

    ways = {"seven plain runs": plain, "imix, whole evaluation": ours, "imix, its seven classifiers on all rows": seven}
    what: dict[str, object] = {
        "features": "cached",
        "device": str(device),
        "rows": rows,
        "width": width,
        "epochs": epochs,
    }
    lines = told(what, taking_turns(ways, device, rounds, seconds=0.0), "seven plain runs")
    apart = max(abs(last["plain"][lr] - last["imix"][lr]) for lr in Linear().rates)
    share = statistics.mean(last["plain"].values())
    noise = (2 * share * (1 - share) / len(known[1])) ** 0.5  # of the difference of two accuracies
    agree = {"by rate, plain": last["plain"], "by rate, imix": last["imix"], "largest difference": round(apart, 4)}
    print(json.dumps(what | agree | {"two deviations of chance": round(2 * noise, 4)}), flush=True)
    return lines


def with_views(given: argparse.Namespace, device: torch.device) -> list[list[object]]:
    """On new views in every epoch."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (given.images, 3, 32, 32), generator=generator, dtype=torch.uint8)
    source = Tensors(pixels.to(device), (torch.arange(given.images) % given.classes).to(device))
    encoder = channels_last(build(given.encoder, (3, 32, 32)).to(device)).eval()
    views, bf16 = PadCrop(), device.type == "cuda"
    train = Encoded(encoder, source, device, views, bf16)
    test = Encoded(encoder, source.take(torch.arange(given.images // 5, device=device)), device, bf16=bf16)

    def seen(at: Tensor) -> Tensor:
        with torch.no_grad():
            x = laid_out(views(as_floats(source.inputs[at])))
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                return encoder(x).float()

    def plain(how: Linear) -> object:
        return plain_runs(seen, train.labels(), (test.features(), test.labels()), given.classes, how)

    few, more = (Linear(epochs=epochs, milestones=()) for epochs in given.epochs)
    ways: dict[str, Callable[[], object]] = {
        "plain, few": lambda: plain(few),
        "plain, more": lambda: plain(more),
        "imix, few": lambda: linear(train, test, given.classes, few),
        "imix, more": lambda: linear(train, test, given.classes, more),
    }
    with fastest_algorithms():
        for way in ("plain, few", "imix, few"):
            ways[way]()
        times = taking_turns(ways, device, given.rounds, seconds=0.0)
    whole = {}
    for name, who in (("seven plain runs", "plain"), ("imix, whole evaluation", "imix")):
        pairs = zip(times[f"{who}, few"], times[f"{who}, more"], strict=True)
        left = (Linear().epochs - more.epochs) / (more.epochs - few.epochs)
        whole[name] = [after + left * (after - before) for before, after in pairs]
    what: dict[str, object] = {"features": "with views", "device": str(device), "images": given.images}
    what |= {"encoder": given.encoder, "epochs measured": given.epochs, "epochs": Linear().epochs}
    faster = ratio(whole, "seven plain runs", "imix, whole evaluation").median
    lines = told(what, whole, "seven plain runs")
    print(f"target with views, {VIEWS_TARGET:g} times as fast: {'met' if faster >= VIEWS_TARGET else 'missed'}")
    return lines


def main() -> None:
    """One line of JSON for each way, one for the accuracies, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device(parser)
    parser.add_argument("--rows", type=int, help="of cached features; by default 5,000 on a CPU and 50,000 on a GPU")
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--cached-epochs", type=int, default=100, help="fewer where time is short: cost is proportional"
    )
    parser.add_argument("--views", action="store_true", help="of images, on a CPU too")
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, nargs=2, default=(1, 4), help="that are measured with views")
    given = parser.parse_args()
    device = take_device(given)
    rows = given.rows or (50_000 if device.type == "cuda" else 5_000)
    lines = cached(rows, given.features, given.classes, device, given.rounds, given.cached_epochs)
    if device.type == "cpu" and not given.views:
        print("no GPU asked for: evaluation with views through a ResNet-18 is left out (--views to have it on a CPU)")
    else:
        lines += with_views(given, device)
    print(table(["features", "way", "seconds", "times as fast as plain"], lines))


if __name__ == "__main__":
    main()
