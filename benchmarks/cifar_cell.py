"""One cell of the CIFAR rows of the paper's Table 1 and Table 3, with the settings of the authors' code; resumable.

    python benchmarks/cifar_cell.py cifar10 FOLDER --method moco --mix mixup --epochs 200 --out runs/x

FOLDER holds cifar10.npz or CIFAR's files. Run again with the same arguments to go on where it stopped.
"""

import argparse
import json
import time

import imix


def main() -> None:
    """Pretrain, evaluate, print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=["cifar10", "cifar100"])
    parser.add_argument("folder")
    parser.add_argument("--out", required=True)
    parser.add_argument("--method", default="npair")
    parser.add_argument("--mix", default="mixup")
    parser.add_argument("--augment", default="cifar")
    parser.add_argument("--input-mix", type=int, default=0)
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--fraction", type=float, default=1.0)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--momentum", type=float, default=0.999)
    parser.add_argument("--symmetric", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    settings = imix.Settings(
        method=given.method,
        mix=given.mix,
        augment=given.augment,
        input_mix=given.input_mix,
        encoder=given.encoder,
        epochs=given.epochs,
        weight_decay=given.weight_decay,
        momentum=given.momentum,
        symmetric=given.symmetric,
        seed=given.seed,
        knn_every=max(1, given.epochs // 10),
        checkpoint_minutes=1.0,
    )
    reading = imix.Reading(data_dir=given.folder, fraction=given.fraction)
    started = time.monotonic()
    run = imix.pretrain(given.data, settings, reading, out=given.out, resume=True)
    trained = time.monotonic()
    linear, cached = imix.evaluate(run, augment=True), imix.evaluate(run)
    found = {
        "linear": linear.accuracy,
        "linear, paper's way": linear.details["paper_accuracy"],
        "linear on cached features": cached.accuracy,
        "knn": imix.evaluate(run, protocol="knn").accuracy,
        "best knn on the way": max(record.get("knn", 0.0) for record in run.metrics),
        "seconds of training": round(trained - started, 1),
        "seconds of evaluation": round(time.monotonic() - trained, 1),
    }
    print(json.dumps(vars(given) | found))


if __name__ == "__main__":
    main()
