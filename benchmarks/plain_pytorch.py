"""imix against the same thing written plainly in PyTorch, and against the parts of lightly, taking turns in one run.

    python benchmarks/plain_pytorch.py                        # on the GPU where there is one
    python benchmarks/plain_pytorch.py --device cpu --parts steps fit

Steps: digits with the demo's network and a table with the default one, N-pair without and with MixUp, through imix's
own step and through a loop as one writes it: `nn.Sequential`, `F.cross_entropy`, `torch.optim.SGD`. Losses of both are
compared first, for the same weights, partners and lam.
Fit: the whole of `IMixTransformer().fit` on tables that scikit-learn ships, and as many plain steps, with the scaling
of columns, the order of rows and the schedule of the rate.
Losses: lightly's NTXentLoss, without and with its memory bank, NegativeCosineSimilarity and update_momentum against
imix's, forward and backward; left out where lightly is not installed.
A ratio below 1 means that imix takes less time.
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
from clock import add_device, make_step, ratio, table, take_device, taking_turns
from sklearn import datasets
from torch import Tensor, nn

import imix
from imix import losses
from imix.data import Data, Tensors, load
from imix.demo import PLAIN
from imix.methods import Projected
from imix.mix import Mix

TABLES = {"iris": datasets.load_iris, "wine": datasets.load_wine, "breast cancer": datasets.load_breast_cancer}


class Maxout(nn.Module):
    """The largest of each four units."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, F) -> (N, F / 4)."""
        return x.view(len(x), -1, 4).amax(2)


def network(inputs: int, widths: list[int]) -> nn.Sequential:
    """The paper's tabular network and its head, as one writes it."""
    layers: list[nn.Module] = [nn.Flatten()]
    for width in widths[:-1]:
        layers += [nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(inplace=True)]
        inputs = width
    features = widths[-1] // 4
    layers += [nn.Linear(inputs, widths[-1]), Maxout()]
    layers += [nn.Linear(features, features), nn.BatchNorm1d(features), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(features, 128), nn.BatchNorm1d(128))


def objective(q: Tensor, k: Tensor, temperature: float, partner: Tensor | None, lam: Tensor | None) -> Tensor:
    """N-pair, with i-Mix where there are partners, by the cross-entropy of the similarities."""
    logits = F.normalize(q, dim=1) @ F.normalize(k, dim=1).T / temperature
    own = torch.arange(len(q), device=q.device)
    if partner is None or lam is None:
        return F.cross_entropy(logits, own)
    to_own = F.cross_entropy(logits, own, reduction="none")
    to_partner = F.cross_entropy(logits, partner, reduction="none")
    return (lam * to_own + (1 - lam) * to_partner).mean()


def plain_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, temperature: float, masking: float, mixed: bool
) -> Tensor:
    """One step of a loop of one's own."""
    views = [x.masked_fill(torch.rand_like(x) < masking, 0) if masking else x for _ in range(2)]
    partner = lam = None
    anchors = views[0]
    if mixed:
        lam = torch.distributions.Beta(1.0, 1.0).sample((len(x),)).to(x.device)
        lam = torch.maximum(lam, 1 - lam)
        partner = torch.randperm(len(x), device=x.device)
        weight = lam.view(-1, *[1] * (x.dim() - 1))
        anchors = weight * anchors + (1 - weight) * anchors[partner]
    q, k = model(torch.cat([anchors, views[1]])).chunk(2)
    loss = objective(q, k, temperature, partner, lam)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def sgd(model: nn.Module, device: torch.device) -> torch.optim.Optimizer:
    """As imix's, but for what one has to ask for on a CPU."""
    fused = True if device.type == "cuda" else None
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, fused=fused)


def check_same(learner: Projected, model: nn.Module, x: Tensor, temperature: float) -> None:
    """See that both ways are the same network and objective: the same weights and mixing give the same loss."""
    model.load_state_dict(dict(zip(model.state_dict(), learner.state_dict().values(), strict=True)))
    partner, lam = torch.randperm(len(x), device=x.device), torch.rand(len(x), device=x.device)
    with torch.no_grad():
        q, k = learner.project(x, x)
        p, other = model(torch.cat([x, x])).chunk(2)
        for mix in (None, Mix(partner, lam)):
            ours = losses.npair(q, k, mix, temperature=temperature)
            plain = objective(p, other, temperature, *(mix or (None, None)))
            torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)


def told(what: dict[str, object], times: dict[str, list[float]], rival: str) -> list[object]:
    """Print a line of JSON; gives the row of a table."""
    found = ratio(times, "imix", rival)
    milliseconds = {f"ms, {way}": round(1e3 * statistics.median(taken), 3) for way, taken in times.items()}
    print(json.dumps(what | milliseconds | found.told()), flush=True)
    verdict = "slower" if found.low > 1 else "faster" if found.high < 1 else "alike"
    span = f"{found.low:.2f} to {found.high:.2f}"
    return [what["part"], what["what"], rival, f"{found.median:.2f}", span, verdict]


def steps(device: torch.device, rounds: int) -> list[list[object]]:
    """Training steps of digits and of a table."""
    lines = []
    table_data = Data("table", Tensors(torch.randn(1024, 30, generator=torch.Generator().manual_seed(0))))
    cases = (
        ("digits, the demo's network", load("digits"), PLAIN.encoder, [256, 256, 256, 256, 512], 64, 0.5, 0.0),
        ("a table, the default network", table_data, "small", [256, 256, 1024], 256, 0.2, 0.2),
    )
    for name, data, encoder, widths, batch, temperature, masking in cases:
        x = data.train.sample(batch).to(device)
        for mix in ("none", "mixup"):
            settings = imix.Settings(
                mix=mix,
                encoder=encoder,
                batch_size=batch,
                temperature=temperature,
                masking=masking,
                precision="fp32",
                compile=False,
                device=str(device),
            )
            take, learner = make_step(data, settings)
            model = network(math.prod(x.shape[1:]), widths).to(device)
            assert isinstance(learner, Projected)
            check_same(learner, model, x, temperature)
            optimizer = sgd(model, device)

            def plain(
                model: nn.Module = model,
                optimizer: torch.optim.Optimizer = optimizer,
                x: Tensor = x,
                how: tuple[float, float, bool] = (temperature, masking, mix != "none"),
            ) -> Tensor:
                return plain_step(model, optimizer, x, *how)

            for _ in range(5):  # where it is recorded, the fourth is
                take()
            times = taking_turns({"imix": take, "plain PyTorch": plain}, device, rounds)
            what: dict[str, object] = {"part": "step", "what": f"{name}, {mix}", "batch": batch, "device": str(device)}
            lines.append(told(what, times, "plain PyTorch"))
    return lines


def plain_fit(rows: np.ndarray, epochs: int, batch: int, device: torch.device) -> nn.Module:
    """What `IMixTransformer().fit` does, as a loop of one's own."""
    scaled = (rows - rows.mean(0)) / rows.std(0)
    x = torch.from_numpy(scaled.astype(np.float32)).to(device)
    model = network(x.shape[1], [256, 256, 1024]).to(device)
    optimizer = sgd(model, device)
    batch = min(batch, len(x))
    per_epoch = len(x) // batch
    for epoch in range(epochs):
        order = torch.randperm(len(x), device=device)
        for at in range(per_epoch):
            decayed = 0.5 * (1 + math.cos(math.pi * max(epoch, 5) / epochs))
            for group in optimizer.param_groups:
                group["lr"] = 0.125 * batch / 256 * decayed * min(1.0, (epoch * per_epoch + at) / (5 * per_epoch))
            loss = plain_step(model, optimizer, x[order[at * batch : (at + 1) * batch]], 0.2, 0.2, True)
        if epoch % 10 == 9 and not math.isfinite(float(loss)):
            raise RuntimeError(f"the loss became {float(loss)} in epoch {epoch}")
    return model.eval()


def fit(device: torch.device, rounds: int) -> list[list[object]]:
    """The whole of a fit."""
    lines = []
    for name, read in TABLES.items():
        rows = read().data
        epochs = 100
        ways: dict[str, Callable[[], object]] = {
            "imix": partial(imix.IMixTransformer(device=str(device), random_state=0).fit, rows),
            "plain PyTorch": partial(plain_fit, rows, epochs, 256, device),
        }
        times = taking_turns(ways, device, rounds, seconds=0.0)
        what: dict[str, object] = {
            "part": "fit",
            "what": f"{name}, {len(rows)} rows",
            "steps": epochs * (len(rows) // min(256, len(rows))),
        }
        lines.append(told(what | {"device": str(device)}, times, "plain PyTorch"))
    return lines


def lightlys(device: torch.device, rounds: int) -> list[list[object]]:
    """lightly's losses and moving average."""
    try:
        from lightly.loss import NegativeCosineSimilarity, NTXentLoss
        from lightly.models.utils import update_momentum
    except ImportError:
        print("lightly is not installed: left out")
        return []
    n, dim, queue = 256, 128, 4096
    a, b = (torch.randn(n, dim, device=device, requires_grad=True) for _ in range(2))
    keys = b.detach()
    ntxent, cosine = NTXentLoss(0.2).to(device), NegativeCosineSimilarity().to(device)
    banked = NTXentLoss(0.2, memory_bank_size=(queue, dim)).to(device)
    moco = imix.MoCo(nn.Identity(), width=dim, queue=queue, temperature=0.2).to(device)
    pair = [imix.encoders.build("resnet18", (3, 32, 32)).to(device) for _ in range(2)]
    byol = imix.BYOL(imix.encoders.build("resnet18", (3, 32, 32)), momentum=0.99).to(device)

    def both() -> Tensor:
        z = torch.cat([a, b])
        return losses.simclr(z, z, temperature=0.2)

    def queued() -> Tensor:
        loss = losses.moco(a, keys, moco.queue, temperature=0.2)
        moco._enqueue(F.normalize(keys, dim=1))
        return loss

    moco.queue.copy_(banked.memory_bank.bank)
    torch.testing.assert_close(both(), ntxent(a, b), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(queued(), banked(a, keys), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(losses.byol(a, keys), 2 + 2 * cosine(a, keys), rtol=1e-4, atol=1e-4)

    def backward(loss: Callable[[], Tensor]) -> Callable[[], None]:
        def call() -> None:
            a.grad = b.grad = None
            loss().backward()

        return call

    cases: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "SimCLR's loss (NTXentLoss)": (backward(both), backward(lambda: ntxent(a, b))),
        "MoCo's loss and queue (NTXentLoss, memory bank)": (backward(queued), backward(lambda: banked(a, keys))),
        "BYOL's loss (NegativeCosineSimilarity)": (
            backward(lambda: losses.byol(a, keys)),
            backward(lambda: cosine(a, keys)),
        ),
        "moving average of a ResNet-18 (update_momentum)": (byol.update, lambda: update_momentum(*pair, m=0.99)),
    }
    lines = []
    for name, (ours, theirs) in cases.items():
        times = taking_turns({"imix": ours, "lightly": theirs}, device, rounds)
        what: dict[str, object] = {"part": "lightly", "what": name, "batch": n, "dim": dim, "device": str(device)}
        lines.append(told(what, times, "lightly"))
    return lines


def main() -> None:
    """One line of JSON for each comparison, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device(parser)
    parser.add_argument("--parts", nargs="+", choices=("steps", "fit", "lightly"), default=("steps", "fit", "lightly"))
    parser.add_argument("--rounds", type=int, default=25, help="of steps and losses; a fit has fewer")
    given = parser.parse_args()
    device = take_device(given)
    lines = []
    for part in given.parts:
        if part == "steps":
            lines += steps(device, given.rounds)
        elif part == "fit":
            lines += fit(device, max(3, given.rounds // 5))
        else:
            lines += lightlys(device, given.rounds)
    print(table(["part", "what", "rival", "rival = 1", "95 %", "imix is"], lines))


if __name__ == "__main__":
    main()
