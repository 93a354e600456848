"""`imix bench`: measures the training speed on this machine and finds the bottleneck.

The same step is timed in three variants: with views that were made in advance (the step only), with augmentation in
every step, and with data loading as well, as in a real run. A percentage far below 100% shows the bottleneck.
"""

import itertools
from dataclasses import dataclass
from typing import Any, Unpack

import torch

from imix.data import Data, TensorSource, load
from imix.errors import printable
from imix.html_table import html_table
from imix.output import print_message
from imix.progress import format_duration
from imix.run.initial_weights import find_initial_weights
from imix.runtime.device import should_compile, uses_bf16
from imix.runtime.rng import isolated_rng
from imix.settings import DataSettings, Settings
from imix.train.auto import resolve_auto
from imix.train.options import Options, collect_options
from imix.train.setup import TrainingSetup, build_setup
from imix.train.step import build_optimizer, prepare, training_step
from imix.train.throughput import steps_per_second


@dataclass(frozen=True)
class Throughput:
    """Views per second of the step only, with augmentation, and end to end, and the resulting duration of a run.

    Examples
    --------
    >>> from imix.train.bench import Throughput
    >>> print(Throughput("npair on rows", 200.0, 190.0, 100.0, 20, 6, 600))  # doctest: +ELLIPSIS
    npair on rows...
    600 epochs of 6 steps take 12.0 minutes
    """

    title: str
    step_only: float
    with_augmentation: float
    end_to_end: float
    views_per_step: int
    steps_per_epoch: int
    epochs: int
    memory: int | None = None  # peak bytes on a GPU

    @property
    def seconds(self) -> float:
        """Duration of the run that the settings describe, without setup and compilation."""
        return self.steps_per_epoch * self.epochs * self.views_per_step / self.end_to_end

    def __str__(self) -> str:
        lines = [f"{name:24}{views:>10}{ms:>11}{relative:>9}" for name, views, ms, relative in self._rows()]
        return "\n".join([printable(self.title), *lines, self._duration])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The text, for IPython in a terminal."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        header, *rows = self._rows()
        return html_table(rows, header, title=self.title, notes=[self._duration])

    def _rows(self) -> list[list[str]]:
        variants = {
            "step only": self.step_only,
            "+ augmentation": self.with_augmentation,
            "+ data loading": self.end_to_end,
        }
        rows = [["", "views/s", "ms/step", "relative"]]
        for name, throughput in variants.items():
            ms_per_step, percentage = 1e3 * self.views_per_step / throughput, 100 * throughput / self.step_only
            rows.append([name, f"{throughput:,.0f}", f"{ms_per_step:.2f}", f"{percentage:.0f}%"])
        return rows

    @property
    def _duration(self) -> str:
        text = f"{self.epochs} epochs of {self.steps_per_epoch} steps take {format_duration(self.seconds)}"
        return text if self.memory is None else f"{text}; peak GPU memory {self.memory / 2**30:.1f} GiB"


def bench(
    data: Any = None,
    settings: Settings | None = None,
    data_settings: DataSettings | None = None,
    *,
    labels: Any = None,
    duration: float = 5.0,
    progress: bool = True,
    **options: Unpack[Options],
) -> Throughput:
    """Measure the training speed of `imix.pretrain` with the same arguments on this machine; nothing is written.

    Parameters
    ----------
    data, settings, data_settings, labels, **options
        As for `imix.pretrain`. Without data, random images of CIFAR's size are used.
    duration : float
        Seconds over which each of the three variants is timed. They take turns, after a few steps of warm-up.
    progress : bool
        Show progress on stderr.

    Returns
    -------
    Throughput
        Views per second of each variant; printing it gives a table.

    Examples
    --------
    >>> result = imix.bench(torch.randn(64, 10), batch_size=32, duration=0.1, progress=False)
    >>> result.end_to_end > 0
    True
    """
    settings, data_settings, components = collect_options(settings, data_settings, options)
    settings, initial = find_initial_weights(settings, custom_encoder=components.encoder is not None)
    table = None if initial is None else initial.table
    dataset = _random_images() if data is None else load(data, data_settings, labels=labels, table=table)
    resolved, choice = resolve_auto(settings, dataset, components, initial)
    setup = build_setup(dataset, resolved, components, initial)
    device = setup.device
    make_views = prepare(setup)
    optimizer = build_optimizer(setup.learner, resolved, device)
    samples = (batch for epoch in itertools.count() for batch in setup.batches(epoch))
    first = next(samples)
    with isolated_rng(device):
        fixed_views = make_views(first[0])
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    if progress:
        print_message(*choice, "measuring ...")
    with (
        training_step(lambda batch: fixed_views, setup.learner, optimizer, setup) as fixed_views_step,
        training_step(make_views, setup.learner, optimizer, setup) as step,
    ):
        variants = (fixed_views_step, itertools.repeat(first)), (step, itertools.repeat(first)), (step, samples)
        step_only, with_augmentation, end_to_end = steps_per_second(variants, device, duration)
    views_per_step = setup.learner.n_views * setup.batch_size
    return Throughput(
        _title(dataset.name, setup),
        step_only * views_per_step,
        with_augmentation * views_per_step,
        end_to_end * views_per_step,
        views_per_step,
        setup.steps_per_epoch,
        resolved.epochs,
        torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
    )


def _title(name: str, setup: TrainingSetup) -> str:
    options = [str(setup.device), "bf16" if uses_bf16(setup.settings, setup.device) else "fp32"]
    options += ["compiled"] if should_compile(setup.settings, setup.device, setup.steps_per_epoch) else []
    options += ["CUDA graph"] if setup.use_cuda_graph else []
    return f"{setup.title} on {name}, {setup.encoder_name}, {', '.join(options)}"


def _random_images() -> Data:
    pixels = torch.randint(0, 256, (50_000, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return Data("random images", TensorSource(pixels, torch.arange(len(pixels)) % 10), augment="cifar")
