"""One step of training, from a batch to moved weights; on a GPU recorded once and replayed."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from imix.augment.image import CropAndColours
from imix.batch import Batch
from imix.methods import Method
from imix.mix import InputMix
from imix.settings import Settings
from imix.train.build import Made
from imix.train.device import channels_last, compiles, fastest_algorithms, uses_bf16
from imix.train.randomness import own_randomness, seed_all
from imix.train.record import Recorded
from imix.train.views import Views

# Steps after which it pays to try several tilings of each kernel: that takes 9 s and saves 1 % of a ResNet-18's step.
TILINGS_TRIED = 100_000


def make_ready(made: Made) -> Views:
    """The learner on its device, ready to be trained, and the views that it is to see."""
    channels_last(made.learner.to(made.device)).train()
    input_mix = InputMix(made.settings.input_mix) if made.settings.input_mix else None
    return Views(made.view, made.learner.views, input_mix, at_once="augment" not in made.own).to(made.device)


class Step:
    """Views, loss, gradient, optimiser, moving averages; `network` is the learner, or what joins it over ranks."""

    def __init__(
        self,
        views: Callable[[Batch], list[Batch]],
        network: Callable[..., Tensor],
        learner: Method,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        bf16: bool,
    ) -> None:
        self.views, self.network, self.learner, self.optimizer = views, network, learner, optimizer
        self.device, self.bf16 = device, bf16

    def __call__(self, batch: Batch, labels: Tensor | None, lr: float, seeds: tuple[int, ...]) -> Tensor:
        """Take a step with that learning rate and the random numbers of those seeds; gives the loss."""
        self._set_rate(lr)
        seed_all(*seeds)
        return self._take(batch, labels)

    def _set_rate(self, lr: float | Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def _take(self, batch: Batch, labels: Tensor | None = None) -> Tensor:
        with torch.autocast(self.device.type, enabled=False):  # pixels do not fit into eight bits of mantissa
            views = self.views(batch)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss = self.network(*views, labels) if self.learner.supervised else self.network(*views)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.learner.update()
        return loss.detach()


class RecordedStep(Step):
    """The same step, recorded once and replayed; see `Recorded`."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.lr = torch.zeros((), device=self.device)  # a graph reads it from memory: a number would be recorded
        self.recorded = Recorded(self._take, self.device)

    def __call__(self, batch: Batch, labels: Tensor | None, lr: float, seeds: tuple[int, ...]) -> Tensor:
        """As every step."""
        self.lr.fill_(lr)
        self._set_rate(self.lr)
        given = (batch,) if labels is None else (batch, labels)
        return self.recorded(*given, before=lambda: seed_all(*seeds))


@contextmanager
def taking_steps(
    views: Callable[[Batch], list[Batch]],
    network: Callable[..., Tensor],
    optimizer: torch.optim.Optimizer,
    made: Made,
) -> Iterator[Step]:
    """What takes a step, compiled and recorded as the settings say.

    Views and network are compiled each by itself: a graph without gradient, and one with; views that one kernel makes
    are left as they are. The caller's random numbers are left as they were.
    """
    settings, device = made.settings, made.device
    kind = RecordedStep if made.recorded else Step
    with own_randomness(device), fastest_algorithms(), ExitStack() as compiling:
        if compiles(settings, device, made.steps):
            try_tilings = made.steps * settings.epochs > TILINGS_TRIED
            fast = partial(torch.compile, options={"triton.autotune_pointwise": try_tilings})
            network = fast(network)
            views = views if _in_one_kernel(views, device) else fast(views)
            warnings.filterwarnings("ignore", "Torchinductor does not support code generation for complex")
            # Unasked it may only ever help: where it fails, the step runs as it is.
            compiling.enter_context(torch._dynamo.config.patch(suppress_errors=settings.compile is None))
        yield kind(views, network, made.learner, optimizer, device, uses_bf16(settings, device))


def _in_one_kernel(views: Callable[[Batch], list[Batch]], device: torch.device) -> bool:
    """Whether there is next to nothing to compile in the views."""
    parts = views.modules() if isinstance(views, nn.Module) else []
    return any(isinstance(part, CropAndColours) and part.in_one_kernel(device) for part in parts)


def make_optimizer(
    learner: Method, settings: Settings, device: torch.device, state: dict[str, Any] | None = None
) -> torch.optim.Optimizer:
    """SGD or AdamW over everything that learns, as new or in that state; each step sets the rate."""
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    optimizer: torch.optim.Optimizer
    if settings.optimizer == "sgd":
        optimizer = torch.optim.SGD(parameters, lr=0.0, momentum=0.9, weight_decay=settings.weight_decay)
    else:
        optimizer = torch.optim.AdamW(parameters, lr=0.0, weight_decay=settings.weight_decay)
    for group in optimizer.param_groups if state is None else state["param_groups"]:
        group["fused"] = True
        if "capturable" in optimizer.defaults:  # a recorded step cannot ask the host; whatever the device was before
            group["capturable"] = device.type == "cuda"
    if state is not None:
        optimizer.load_state_dict(state)
    return optimizer
