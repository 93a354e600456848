"""An epoch of CIFAR-size images (50,000, two views each, everything included) against the bare step in the same run.

    python benchmarks/image_epoch.py --encoder resnet18 --method npair

The bare step has its two views in place, normalised and augmented beforehand: mixing, network, loss, gradient and SGD,
compiled, bf16, channels last. Needs a GPU; says so where there is none.
"""

import argparse
import json
import time

import torch

import imix
from imix.data import Data, Tensors

IMAGES, BATCH = 50_000, 256
MODES = {
    "launched": {"compile": False, "cuda_graph": False},
    "recorded": {"compile": False, "cuda_graph": True},
    "compiled": {"compile": True, "cuda_graph": False},
    "compiled and recorded": {"compile": True, "cuda_graph": True},
}


def bare(encoder: str, method: str, mix: str, steps: int = 100) -> float:
    """Views per second of the step alone."""
    device = torch.device("cuda")
    operator = imix.MixUp() if mix == "mixup" else None
    classes = {"npair": imix.NPair, "moco": imix.MoCo, "byol": imix.BYOL, "simclr": imix.SimCLR}
    learner = classes[method](imix.encoders.build(encoder, (3, 32, 32)), operator)
    learner.to(device, memory_format=torch.channels_last)
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)
    views = [torch.randn(BATCH, 3, 32, 32, device=device).to(memory_format=torch.channels_last) for _ in range(2)]
    compiled = torch.compile(learner)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(*views)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        learner.update()

    for _ in range(10):
        step()
    torch.cuda.synchronize()
    started = time.monotonic()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return 2 * BATCH * steps / (time.monotonic() - started)


def epoch(data: Data, encoder: str, method: str, mix: str, epochs: int, **mode: bool) -> tuple[float, float]:
    """Seconds of the median epoch of a run, and of its first."""
    steps = IMAGES // BATCH
    settings = imix.Settings(method=method, mix=mix, encoder=encoder, epochs=epochs, batch_size=BATCH, **mode)
    run = imix.pretrain(data, settings, progress=False)
    seconds, before = [0.0] * epochs, 0
    for record in run.metrics:
        views = 2 * BATCH * (record["step"] - before)
        seconds[(record["step"] - 1) // steps] += views / record["views_per_second"]
        before = record["step"]
    return sorted(seconds)[epochs // 2], seconds[0]


def main() -> None:
    """One line of JSON for the bare step and for each way of taking steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--method", default="npair")
    parser.add_argument("--mix", default="mixup")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--modes", nargs="*", choices=MODES, default=[*MODES])
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing to measure")
        return
    what = {"encoder": given.encoder, "method": given.method, "mix": given.mix}
    reach = bare(given.encoder, given.method, given.mix)
    print(json.dumps(what | {"way": "bare step", "views per second": round(reach)}), flush=True)
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (IMAGES, 3, 32, 32), generator=generator, dtype=torch.uint8)
    data = Data("pixels", Tensors(pixels), augment="cifar")
    for mode in given.modes:
        seconds, first = epoch(data, given.encoder, given.method, given.mix, given.epochs, **MODES[mode])
        rate = 2 * BATCH * (IMAGES // BATCH) / seconds
        found = {"way": mode, "seconds an epoch": round(seconds, 2), "views per second": round(rate)}
        found |= {"of the bare step": round(rate / reach, 3), "first epoch": round(first, 1)}
        print(json.dumps(what | found), flush=True)


if __name__ == "__main__":
    main()
