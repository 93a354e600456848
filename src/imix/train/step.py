"""One training step: views, loss, gradient, optimizer, moving averages. On a GPU it is captured as a CUDA graph."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from imix.augment.image import CropAndColorJitter
from imix.batch import Batch
from imix.methods import Method
from imix.mix import InputMix
from imix.run.checkpoint import create_optimizer_state
from imix.runtime.cuda_graph import CudaGraph
from imix.runtime.device import channels_last, cudnn_benchmark, should_compile, uses_bf16
from imix.runtime.rng import isolated_rng, seed_all
from imix.settings import Settings
from imix.train.setup import TrainingSetup
from imix.train.threads import torch_threads
from imix.train.views import Views

MakeViews = Callable[[Batch], list[Batch]]
# Trying several tilings of each kernel takes 9 s and saves 1% of a ResNet-18's step, so only long runs gain from it.
AUTOTUNE_STEPS = 100_000


class TrainingStep:
    """Callable that takes one step and returns the loss; `network` is the learner, wrapped by DDP on several ranks."""

    def __init__(
        self,
        make_views: MakeViews,
        network: Callable[..., Tensor],
        optimizer: torch.optim.Optimizer,
        setup: TrainingSetup,
    ) -> None:
        self.make_views, self.network, self.optimizer = make_views, network, optimizer
        self.learner, self.device = setup.learner, setup.device
        self.bf16 = uses_bf16(setup.settings, setup.device)
        self.graph = CudaGraph(self.run, setup.device) if setup.use_cuda_graph else None
        self.lr = torch.zeros((), device=setup.device)  # a graph reads it from memory; a number would be constant

    def __call__(self, batch: Batch, labels: Tensor | None, lr: float, seed: tuple[int, ...]) -> Tensor:
        """Take a step with this learning rate, with all random numbers drawn from this seed."""
        inputs = (batch, labels) if self.learner.supervised else (batch,)
        for group in self.optimizer.param_groups:
            group["lr"] = lr if self.graph is None else self.lr.fill_(lr)
        if self.graph is not None:
            return self.graph(*inputs, before=lambda: seed_all(*seed))
        seed_all(*seed)
        return self.run(*inputs)

    def run(self, batch: Batch, labels: Tensor | None = None) -> Tensor:
        """Forward, backward, optimizer step, update: everything that happens to a batch."""
        with torch.autocast(self.device.type, enabled=False):  # bfloat16 would round pixels
            views = self.make_views(batch)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss = self.network(*views, labels) if self.learner.supervised else self.network(*views)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.learner.update()  # moving averages and the queue
        return loss.detach().float()


def prepare(setup: TrainingSetup) -> Views:
    """Move the learner to its device, in training mode, and return the module that makes its views."""
    channels_last(setup.learner.to(setup.device)).train()
    input_mix = InputMix(setup.settings.input_mix) if setup.settings.input_mix else None
    in_one_call = "augment" not in setup.user_supplied
    return Views(setup.view, setup.learner.n_views, input_mix, in_one_call=in_one_call).to(setup.device)


@contextmanager
def training_step(
    make_views: MakeViews, network: Callable[..., Tensor], optimizer: torch.optim.Optimizer, setup: TrainingSetup
) -> Iterator[TrainingStep]:
    """Yield the training step, compiled and captured according to the settings.

    Afterwards, restore the random state and the number of threads.

    Views and network are compiled separately, because only the network has gradients. Views that a single kernel makes
    are not compiled.
    """
    settings, device = setup.settings, setup.device
    with isolated_rng(device), torch_threads(setup.threads), cudnn_benchmark(), ExitStack() as compiler_options:
        if should_compile(settings, device, setup.steps_per_epoch):
            autotune = setup.steps_per_epoch * settings.epochs > AUTOTUNE_STEPS
            compile = partial(torch.compile, options={"triton.autotune_pointwise": autotune})
            network = compile(network)
            make_views = make_views if _is_one_kernel(make_views, device) else compile(make_views)
            compiler_options.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "Torchinductor does not support code generation for complex")
            # Compilation that was not requested must not fail a run: fall back to eager mode.
            fallback = settings.compile is None
            compiler_options.enter_context(torch._dynamo.config.patch(suppress_errors=fallback))
        yield TrainingStep(make_views, network, optimizer, setup)


def build_optimizer(learner: Method, settings: Settings, device: torch.device) -> torch.optim.Optimizer:
    """SGD or AdamW over the trainable parameters, with the state of all of them; each step sets the lr."""
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    optimizer: torch.optim.Optimizer
    if settings.optimizer == "sgd":
        optimizer = torch.optim.SGD(parameters, lr=0.0, momentum=0.9, weight_decay=settings.weight_decay)
    else:
        optimizer = torch.optim.AdamW(parameters, lr=0.0, weight_decay=settings.weight_decay)
    for group in optimizer.param_groups:
        group["fused"] = True
        if "capturable" in optimizer.defaults:  # required inside a CUDA graph
            group["capturable"] = device.type == "cuda"
    create_optimizer_state(optimizer)
    return optimizer


def _is_one_kernel(make_views: MakeViews, device: torch.device) -> bool:
    """Whether a single Triton kernel makes the views, so that compiling them would gain nothing."""
    modules = make_views.modules() if isinstance(make_views, nn.Module) else []
    return any(isinstance(module, CropAndColorJitter) and module.has_kernel(device) for module in modules)
