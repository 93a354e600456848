"""imix against the same computation in plain PyTorch, and against the components of lightly, in one run.

    python benchmarks/plain_pytorch.py                        # on the GPU, if there is one
    python benchmarks/plain_pytorch.py --device cpu --parts steps fit

steps: digits with the demo's network and a table with the default one, N-pair without and with MixUp; imix's training
step against a loop with `nn.Sequential`, `F.cross_entropy` and `torch.optim.SGD`. First it is checked that both losses
agree for the same weights, partners and lam.
fit: `IMixTransformer().fit` on tables of scikit-learn, against the same number of plain steps, including the scaling of
columns, the order of rows and the learning rate schedule.
lightly: NTXentLoss, without and with a memory bank, NegativeCosineSimilarity and update_momentum against imix's
equivalents, forward and backward; skipped if lightly is not installed.
A ratio below 1 means that imix is faster.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from sklearn import datasets
from timing import add_device_arguments, build_step, format_table, select_device, time_in_rounds, time_ratio
from torch import Tensor, nn

import imix
from imix import losses
from imix.data import Data, TensorSource, load
from imix.demo import NPAIR
from imix.methods import ProjectionMethod
from imix.mix import Mix
from imix.settings import ResolvedSettings

TABLES = {"iris": datasets.load_iris, "wine": datasets.load_wine, "breast cancer": datasets.load_breast_cancer}
PLAIN = "plain PyTorch"


class Maxout(nn.Module):
    """Maximum over groups of four units."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, F) -> (N, F / 4)."""
        return x.view(len(x), -1, 4).amax(2)


def network(inputs: int, widths: list[int]) -> nn.Sequential:
    """Return the paper's tabular network with its projection head."""
    layers: list[nn.Module] = [nn.Flatten()]
    for width in widths[:-1]:
        layers += [nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(inplace=True)]
        inputs = width
    features = widths[-1] // 4
    layers += [nn.Linear(inputs, widths[-1]), Maxout()]
    layers += [nn.Linear(features, features), nn.BatchNorm1d(features), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(features, 128), nn.BatchNorm1d(128))


def npair_loss(q: Tensor, k: Tensor, temperature: float, partner: Tensor | None, lam: Tensor | None) -> Tensor:
    """Return the N-pair loss as a cross-entropy over similarities, with i-Mix if there are partners."""
    logits = F.normalize(q, dim=1) @ F.normalize(k, dim=1).T / temperature
    labels = torch.arange(len(q), device=q.device)
    if partner is None or lam is None:
        return F.cross_entropy(logits, labels)
    own_loss = F.cross_entropy(logits, labels, reduction="none")
    partner_loss = F.cross_entropy(logits, partner, reduction="none")
    return (lam * own_loss + (1 - lam) * partner_loss).mean()


def plain_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, temperature: float, masking: float, mixup: bool
) -> Tensor:
    """Take one training step in plain PyTorch."""
    views = [x.masked_fill(torch.rand_like(x) < masking, 0) if masking else x for _ in range(2)]
    partner = lam = None
    anchors = views[0]
    if mixup:
        lam = torch.distributions.Beta(1.0, 1.0).sample((len(x),)).to(x.device)
        lam = torch.maximum(lam, 1 - lam)
        partner = torch.randperm(len(x), device=x.device)
        weight = lam.view(-1, *[1] * (x.dim() - 1))
        anchors = weight * anchors + (1 - weight) * anchors[partner]
    q, k = model(torch.cat([anchors, views[1]])).chunk(2)
    loss = npair_loss(q, k, temperature, partner, lam)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def sgd(model: nn.Module, device: torch.device) -> torch.optim.Optimizer:
    """Return SGD with imix's hyperparameters; on a CPU it is not fused, which is PyTorch's default."""
    fused = True if device.type == "cuda" else None
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, fused=fused)


def check_same_loss(learner: ProjectionMethod, model: nn.Module, x: Tensor, temperature: float) -> None:
    """Check that imix and plain PyTorch compute the same loss for the same weights and mixing."""
    model.load_state_dict(dict(zip(model.state_dict(), learner.state_dict().values(), strict=True)))
    partner, lam = torch.randperm(len(x), device=x.device), torch.rand(len(x), device=x.device)
    with torch.no_grad():
        q, k = learner.project(x, x)
        plain_q, plain_k = model(torch.cat([x, x])).chunk(2)
        for mix in (None, Mix(partner, lam)):
            loss = losses.npair(q, k, mix, temperature=temperature)
            plain_loss = npair_loss(plain_q, plain_k, temperature, *(mix or (None, None)))
            torch.testing.assert_close(loss, plain_loss, rtol=1e-4, atol=1e-4)


def print_comparison(case: dict[str, object], times: dict[str, list[float]], rival: str) -> list[object]:
    """Print a line of JSON, and return the row of a table."""
    ratio = time_ratio(times, "imix", rival)
    milliseconds = {f"ms, {variant}": round(1e3 * statistics.median(seconds), 3) for variant, seconds in times.items()}
    print(json.dumps(case | milliseconds | ratio.as_dict()), flush=True)
    verdict = "slower" if ratio.low > 1 else "faster" if ratio.high < 1 else "similar"
    interval = f"{ratio.low:.2f} to {ratio.high:.2f}"
    return [case["part"], case["case"], rival, f"{ratio.median:.2f}", interval, verdict]


def compare_steps(device: torch.device, rounds: int) -> list[list[object]]:
    """Compare training steps on digits and on a table."""
    rows = []
    table = Data("table", TensorSource(torch.randn(1024, 30, generator=torch.Generator().manual_seed(0))))
    cases = (
        ("digits, the demo's network", load("digits"), NPAIR.encoder, [256, 256, 256, 256, 512], 64, 0.5, 0.0),
        ("a table, the default network", table, "small", [256, 256, 1024], 256, 0.2, 0.2),
    )
    for name, data, encoder, widths, batch, temperature, masking in cases:
        x = data.train.sample(batch).to(device)
        for mix in ("none", "mixup"):
            settings = ResolvedSettings(
                mix=mix,
                encoder=encoder,
                batch_size=batch,
                temperature=temperature,
                masking=masking,
                precision="fp32",
                compile=False,
                device=str(device),
            )
            imix_step, learner = build_step(data, settings)
            model = network(math.prod(x.shape[1:]), widths).to(device)
            assert isinstance(learner, ProjectionMethod)
            check_same_loss(learner, model, x, temperature)
            step = partial(plain_step, model, sgd(model, device), x, temperature, masking, mix != "none")
            for _ in range(5):  # on a GPU, the fourth call captures a CUDA graph
                imix_step()
            times = time_in_rounds({"imix": imix_step, PLAIN: step}, device, rounds)
            case: dict[str, object] = {"part": "step", "case": f"{name}, {mix}", "batch": batch, "device": str(device)}
            rows.append(print_comparison(case, times, PLAIN))
    return rows


def plain_fit(table: np.ndarray, epochs: int, batch: int, device: torch.device) -> nn.Module:
    """Do the same as `IMixTransformer().fit` in plain PyTorch."""
    scaled = (table - table.mean(0)) / table.std(0)
    x = torch.from_numpy(scaled.astype(np.float32)).to(device)
    model = network(x.shape[1], [256, 256, 1024]).to(device)
    optimizer = sgd(model, device)
    batch = min(batch, len(x))
    steps_per_epoch = len(x) // batch
    for epoch in range(epochs):
        order = torch.randperm(len(x), device=device)
        for i in range(steps_per_epoch):
            decay = 0.5 * (1 + math.cos(math.pi * max(epoch, 5) / epochs))
            warmup = min(1.0, (epoch * steps_per_epoch + i) / (5 * steps_per_epoch))
            for group in optimizer.param_groups:
                group["lr"] = 0.125 * batch / 256 * decay * warmup
            loss = plain_step(model, optimizer, x[order[i * batch : (i + 1) * batch]], 0.2, 0.2, True)
        if epoch % 10 == 9 and not math.isfinite(float(loss)):
            raise RuntimeError(f"the loss became {float(loss)} in epoch {epoch}")
    return model.eval()


def compare_fit(device: torch.device, rounds: int) -> list[list[object]]:
    """Compare a complete `fit`."""
    rows = []
    for name, load_table in TABLES.items():
        table = load_table().data
        epochs = 100
        variants: dict[str, Callable[[], object]] = {
            "imix": partial(imix.IMixTransformer(device=str(device), random_state=0).fit, table),
            PLAIN: partial(plain_fit, table, epochs, 256, device),
        }
        times = time_in_rounds(variants, device, rounds, seconds=0.0)
        case: dict[str, object] = {
            "part": "fit",
            "case": f"{name}, {len(table)} rows",
            "steps": epochs * (len(table) // min(256, len(table))),
            "device": str(device),
        }
        rows.append(print_comparison(case, times, PLAIN))
    return rows


def compare_lightly(device: torch.device, rounds: int) -> list[list[object]]:
    """Compare losses and the momentum update with lightly's."""
    try:
        from lightly.loss import NegativeCosineSimilarity, NTXentLoss
        from lightly.models.utils import update_momentum
    except ImportError:
        print("skipped lightly, which is not installed")
        return []
    n, dim, queue_size = 256, 128, 4096
    a, b = (torch.randn(n, dim, device=device, requires_grad=True) for _ in range(2))
    keys = b.detach()
    ntxent, cosine = NTXentLoss(0.2).to(device), NegativeCosineSimilarity().to(device)
    ntxent_with_bank = NTXentLoss(0.2, memory_bank_size=(queue_size, dim)).to(device)
    moco = imix.MoCo(nn.Identity(), width=dim, queue=queue_size, temperature=0.2).to(device)
    encoders = [imix.encoders.build("resnet18", (3, 32, 32)).to(device) for _ in range(2)]
    byol = imix.BYOL(imix.encoders.build("resnet18", (3, 32, 32)), momentum=0.99).to(device)

    def simclr_loss() -> Tensor:
        z = torch.cat([a, b])
        return losses.simclr(z, z, temperature=0.2)

    def moco_loss() -> Tensor:
        loss = losses.moco(a, keys, moco.queue, temperature=0.2)
        moco._enqueue(F.normalize(keys, dim=1))
        return loss

    moco.queue.copy_(ntxent_with_bank.memory_bank.bank)
    torch.testing.assert_close(simclr_loss(), ntxent(a, b), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(moco_loss(), ntxent_with_bank(a, keys), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(losses.byol(a, keys), 2 + 2 * cosine(a, keys), rtol=1e-4, atol=1e-4)

    def with_backward(loss: Callable[[], Tensor]) -> Callable[[], None]:
        def forward_and_backward() -> None:
            a.grad = b.grad = None
            loss().backward()

        return forward_and_backward

    cases: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "SimCLR loss (NTXentLoss)": (with_backward(simclr_loss), with_backward(lambda: ntxent(a, b))),
        "MoCo loss and queue (NTXentLoss, memory bank)": (
            with_backward(moco_loss),
            with_backward(lambda: ntxent_with_bank(a, keys)),
        ),
        "BYOL loss (NegativeCosineSimilarity)": (
            with_backward(lambda: losses.byol(a, keys)),
            with_backward(lambda: cosine(a, keys)),
        ),
        "momentum update of a ResNet-18 (update_momentum)": (byol.update, lambda: update_momentum(*encoders, m=0.99)),
    }
    rows = []
    for name, (imix_function, lightly_function) in cases.items():
        times = time_in_rounds({"imix": imix_function, "lightly": lightly_function}, device, rounds)
        case: dict[str, object] = {"part": "lightly", "case": name, "batch": n, "dim": dim, "device": str(device)}
        rows.append(print_comparison(case, times, "lightly"))
    return rows


def main() -> None:
    """Print a line of JSON for each comparison, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_arguments(parser)
    parser.add_argument("--parts", nargs="+", choices=("steps", "fit", "lightly"), default=("steps", "fit", "lightly"))
    parser.add_argument("--rounds", type=int, default=25, help="rounds of steps and losses; `fit` has a fifth of them")
    args = parser.parse_args()
    device = select_device(args)
    rows = []
    for part in args.parts:
        if part == "steps":
            rows += compare_steps(device, args.rounds)
        elif part == "fit":
            rows += compare_fit(device, max(3, args.rounds // 5))
        else:
            rows += compare_lightly(device, args.rounds)
    print(format_table(["part", "case", "rival", "time vs rival", "95 % interval", "imix is"], rows))


if __name__ == "__main__":
    main()
