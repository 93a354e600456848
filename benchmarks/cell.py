"""One cell of the paper's tables: pretrain, evaluate, print one line of JSON; resumable.

    python benchmarks/cell.py cifar10 FOLDER --out runs/x --set method moco --set mix mixup --set encoder resnet18
    python benchmarks/cell.py speech_commands FOLDER --out runs/y --set epochs 120 --set temperature 0.5

FOLDER holds the data set's files; --set takes any of imix.Settings by name. Images are also evaluated with views, as
the paper did. Run again with the same arguments to go on where it stopped.
"""

import argparse
import json
import time

import imix


def main() -> None:
    """Pretrain, evaluate, print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("folder")
    parser.add_argument("--out", required=True)
    parser.add_argument("--set", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), dest="settings")
    parser.add_argument("--fraction", type=float, default=1.0)
    given = parser.parse_args()
    chosen = {name: _value(value) for name, value in given.settings}
    settings = imix.Settings(**({"encoder": "resnet18", "checkpoint_minutes": 1.0, "knn_every": 20} | chosen))
    reading = imix.Reading(data_dir=given.folder, fraction=given.fraction)
    started = time.monotonic()
    run = imix.pretrain(given.data, settings, reading, out=given.out, resume=True)
    trained = time.monotonic()
    cached = imix.evaluate(run)
    found = {
        "linear on cached features": cached.accuracy,
        "the same, paper's way": cached.details["paper_accuracy"],
        "knn": imix.evaluate(run, protocol="knn").accuracy,
    }
    if len(run.config["data"]["shape"]) == 3:
        linear = imix.evaluate(run, augment=True)
        found |= {"linear": linear.accuracy, "linear, paper's way": linear.details["paper_accuracy"]}
    seconds = {
        "seconds of training": round(trained - started, 1),
        "seconds of evaluation": round(time.monotonic() - trained, 1),
    }
    print(json.dumps({"data": given.data, "fraction": given.fraction} | chosen | found | seconds))


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


if __name__ == "__main__":
    main()
