"""`imix.finetune`: trains a classifier or regressor from a pretrained encoder and labels."""

import copy
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from imix import files
from imix.augment import compose
from imix.augment.image import weak_crops
from imix.batch import Batch, map_fields, to_float
from imix.data import Data, Source, TensorSource
from imix.encoders import infer_width
from imix.errors import InputError, did_you_mean
from imix.mix import MixUp
from imix.probes.features import EncodedSource
from imix.probes.held_out import labeled_samples, stratified_split
from imix.probes.linear import fit_linear
from imix.probes.run_data import load_for_run
from imix.progress import ProgressLine
from imix.run import Run, as_run, clear_run_folder, refuse_export
from imix.run.classifier import Classifier, save_head
from imix.run.config import DataConfig
from imix.run.stored_encoder import save_encoder
from imix.runtime.device import pick_device
from imix.runtime.rng import isolated_rng, seed_all
from imix.settings import FineTuning
from imix.train.setup import build_method, build_mix
from imix.train.threads import pick_threads, torch_threads
from imix.train.views import Views, build_view

MAX_REFIT = 10_000  # up to this many labels, the model is trained again with the held-out ones
MIN_GAIN = 1.0  # standard errors by which the held-out loss must improve
MIN_PER_CLASS = 5  # labels of the rarest class below which none are held out
MAX_INPUTS = 10_000  # inputs with more values per sample are not shown to the head by default


class FineTuningOptions(TypedDict, total=False):
    """Keyword arguments of `finetune`: the fields of `FineTuning`."""

    include_inputs: bool | None
    epochs: int
    batch_size: int
    lr: float
    encoder_lr: float
    weight_decay: float
    mix: Literal["none", "mixup"]
    alpha: float
    class_weights: bool
    unlabeled_weight: float
    held_out: float
    patience: int
    seed: int


def finetune(
    run: "Run | nn.Module | str | Path",
    data: Any = None,
    *,
    label: str | None = None,
    labels: Any = None,
    missing_label: str | None = None,
    columns: Mapping[str, str] | None = None,
    path_column: str | None = None,
    data_dir: str | None = None,
    out: "str | Path | None" = None,
    overwrite: bool = False,
    device: str = "auto",
    **options: Unpack[FineTuningOptions],
) -> Run:
    """Train a classifier, or a regressor if the labels are numbers, from a pretrained encoder.

    The head starts as the linear model of `imix.evaluate`, fitted to the frozen features (and inputs); then all
    layers are trained, the encoder at a lower learning rate. The number of epochs is chosen on held-out labels, and the
    model is trained once more with all labels, so that the result is rarely worse than the linear model.

    Parameters
    ----------
    run : Run, nn.Module, str or Path
        A run, its folder, or any module from samples (N, ...) to features (N, F). It is not changed.
    data : optional
        The labeled data, in any form that `imix.pretrain` accepts. Samples without a label are used only with
        `unlabeled_weight`. Default: the data that the run was trained on.
    label : str, optional
        The label column, if `data` is a table. Default: the run's.
    labels : array of shape (N,), optional
        Labels, if `data` is an array.
    missing_label : str, optional
        Label that means "no label", such as "-1". Default: the run's.
    columns : dict, optional
        Columns of a table to ignore, for example ``{"id": "drop"}``.
    path_column : str, optional
        Column of a table with the paths of the image or audio files. Default: the run's.
    data_dir : str, optional
        Folder with the files of a named data set.
    out : str or Path, optional
        Run folder to write, which `imix.predict`, `embed`, `export` and so on accept.
    overwrite : bool
        Replace the run in `out`.
    device : str
        "auto", "cpu", "cuda" or "cuda:N".
    **options
        Options of `imix.settings.FineTuning`, for example ``epochs=100`` or ``unlabeled_weight=0.1``.

    Returns
    -------
    Run
        The fine-tuned run.

    Examples
    --------
    >>> run = imix.pretrain("digits", epochs=2, device="cpu", progress=False)
    >>> tuned = imix.finetune(run, "digits", epochs=2, device="cpu")
    >>> imix.predict(tuned, "digits", device="cpu").probabilities.shape
    (1797, 10)
    """
    known = [field.name for field in fields(FineTuning)]
    for name in options:
        if name not in known:
            raise InputError(f"unknown option {name!r}{did_you_mean(name, known)}")
    settings = FineTuning(**options)
    run, folder = as_run(run), None if out is None else Path(out)
    if folder is not None:
        _check_folder(folder, run, overwrite)
    data = run.config.data.name if data is None else data
    reading: Any = {"missing_label": missing_label, "columns": columns, "path_column": path_column}
    loaded = load_for_run(run, data, labels, label=label, data_dir=data_dir, **reading)
    labeled = labeled_samples(loaded)
    if loaded.n_classes < 2 and not loaded.train.is_numeric:
        raise InputError(f"all samples of {loaded.name} have the same class; a classifier needs at least two")
    if settings.include_inputs is None:
        settings = replace(settings, include_inputs=has_small_rows(loaded))
    if settings.include_inputs and loaded.train.shape is None:
        raise InputError(f"`include_inputs` needs samples with one field; samples of {loaded.name} have several")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    model, metrics = train_classifier(run, loaded, labeled, settings, pick_device(device))
    data_config = DataConfig(
        loaded.name, len(labeled), loaded.train.shape, loaded.settings, loaded.table, loaded.train.fingerprint()
    )
    config = replace(
        run.config,
        data=data_config,
        fine_tuning=settings,
        classes=() if loaded.train.is_numeric else tuple(loaded.display_names),
    )
    tuned = Run(model.encoder.cpu().eval(), config, metrics, folder, head=model.head.cpu())
    if folder is not None:
        with files.locked(folder):
            (folder / "config.json").unlink(missing_ok=True)  # first, so that a mixture of files is not a run folder
            clear_run_folder(folder)
            files.write_jsonl(folder / "metrics.jsonl", metrics)
            save_head(folder, model.head)
            save_encoder(folder / "encoder.safetensors", tuned.encoder.state_dict(), config.architecture)
            files.write_json(folder / "config.json", config.to_json())  # last, because it marks a run folder
    return tuned


def _check_folder(folder: Path, run: Run, overwrite: bool) -> None:
    """Raise InputError if the folder has a run that must not be replaced."""
    refuse_export(folder)
    if (folder / "config.json").exists() and not overwrite:
        raise InputError(f"{str(folder)!r} has a run; pass `overwrite` to replace it, or change `out`")
    if run.path is not None and folder.resolve() == run.path.resolve():
        raise InputError(f"{str(folder)!r} is the folder of the pretrained run; change `out`")


def has_small_rows(data: Data) -> bool:
    """Whether samples are rows that are small enough to be passed to the head by default."""
    shape = data.train.shape
    return shape is not None and len(shape) == 1 and shape[0] <= MAX_INPUTS


def train_classifier(
    run: Run, data: Data, labeled: Source, settings: FineTuning, device: torch.device
) -> tuple[Classifier, list[dict[str, Any]]]:
    """Fine-tune a copy of the run's encoder, and return the classifier or regressor and its training metrics.

    `labeled` contains the training samples that have a label. `data` is used in full only with `unlabeled_weight`.
    `include_inputs` must be set. Numeric targets are predicted in their original units.
    """
    trainer = _Trainer(run, data, labeled, settings, device)
    with isolated_rng(device), torch_threads(trainer.threads):
        model, metrics = trainer.train()
    with torch.no_grad():
        model.head.weight.mul_(trainer.scale)
        model.head.bias.mul_(trainer.scale).add_(trainer.center)
    return model, metrics


class _Trainer:
    """Trains classifiers on the labeled samples, starting from copies of the run's encoder."""

    def __init__(self, run: Run, data: Data, labeled: Source, settings: FineTuning, device: torch.device) -> None:
        self.run, self.data, self.settings, self.device = run, data, settings, device
        self.source = labeled.to(device)
        assert self.source.labels is not None
        self.labels = self.source.labels.to(device)
        # Crops and flips suit images that were pretrained with them; digits, for example, were not.
        crops = (run.settings.augment or data.augment) in ("cifar", "imagenet")
        preprocess = copy.deepcopy(run.encoder[0]).to(device)
        view = compose(weak_crops(data.train.shape) if crops else nn.Identity(), preprocess)
        if data.clip is not None:
            view = build_view(replace(run.settings, mix_waveforms=False), data, preprocess)
        self.views = Views(view, n_views=1).to(device)
        self.threads = torch.get_num_threads()
        if device.type == "cpu":
            samples = to_float(self.source.sample(2))
            self.threads = pick_threads(copy.deepcopy(run.encoder).to(device), samples, settings.batch_size)
        self.n_classes, self.class_weights = data.n_classes or 1, None  # one output for a number
        self.min_count, self.center, self.scale = len(self.source), 0.0, 1.0
        if data.train.is_numeric:  # learned in units of the standard deviation
            self.center, self.scale = float(self.labels.mean()), float(self.labels.std()) or 1.0
        else:
            counts = torch.bincount(self.labels, minlength=self.n_classes)
            self.min_count = int(counts[counts > 0].min())
            if settings.class_weights:
                self.class_weights = (len(self.labels) / (len(counts) * counts)).clamp(max=1e6)

    def train(self) -> tuple[Classifier, list[dict[str, Any]]]:
        """Choose the number of epochs on held-out labels, and train on all; return the model and its metrics."""
        settings, n = self.settings, len(self.source)
        if settings.held_out == 0 or self.min_count < MIN_PER_CLASS:
            model, metrics, _ = self.fit(torch.arange(n), settings.epochs)
            return model, metrics
        labels = torch.zeros(n) if self.labels.is_floating_point() else self.labels
        kept, held_out = (rows.cpu() for rows in stratified_split(labels, settings.held_out, settings.seed))
        model, metrics, best_epoch = self.fit(kept, settings.epochs, held_out)
        if n <= MAX_REFIT:
            model, _, _ = self.fit(torch.arange(n), best_epoch)
        return model, metrics

    def fit(
        self, rows: Tensor, epochs: int, held_out: Tensor | None = None
    ) -> tuple[Classifier, list[dict[str, Any]], int]:
        """Train on some rows, and return the model, its metrics and the last epoch.

        With `held_out` rows, training stops when their loss no longer improves, and the model is that of the best
        epoch. This is epoch 0, the linear model, unless the loss improves by more than the standard error of the
        improvement.
        """
        settings, model = self.settings, self.start(rows)
        groups = [
            {"params": list(model.encoder.parameters()), "lr": settings.encoder_lr},
            {"params": list(model.head.parameters()), "lr": settings.lr},
        ]
        pretraining = None
        if settings.unlabeled_weight:
            pretraining = _Pretraining(self.run, model.encoder, self.data, self.device)
            groups.append({"params": pretraining.new_parameters(), "lr": settings.lr})
        optimizer = torch.optim.AdamW(groups, weight_decay=settings.weight_decay)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.epochs)
        start_losses = torch.empty(0) if held_out is None else self.losses_on(model, held_out)
        best_loss = float(start_losses.mean())
        best_epoch, best_state = 0, copy.deepcopy(model.state_dict())
        metrics: list[dict[str, Any]] = []
        progress = ProgressLine("fine-tuning", epochs, "epochs")
        for epoch in range(1, epochs + 1):
            seed_all(settings.seed, epoch)
            order = self.source.epoch_order(settings.seed, epoch, rows)
            losses = []
            for x, labels in self.source.batches(order.split(settings.batch_size)):
                loss = self.loss(model, x, labels)
                losses.append(loss.detach())
                if pretraining is not None:
                    loss = loss + settings.unlabeled_weight * pretraining.loss()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if pretraining is not None:
                    pretraining.learner.update()
            schedule.step()
            record = {"step": epoch * len(losses), "epoch": epoch, "loss": float(torch.stack(losses).mean())}
            metrics.append(record)
            progress(epoch, f"loss {record['loss']:.4g}")
            if held_out is not None:
                gains = start_losses - self.losses_on(model, held_out)
                record["held_out_loss"] = float(start_losses.mean() - gains.mean())
                standard_error = float(gains.std()) / len(gains) ** 0.5
                if record["held_out_loss"] < best_loss and gains.mean() > MIN_GAIN * standard_error:
                    best_loss, best_epoch = record["held_out_loss"], epoch
                    best_state = copy.deepcopy(model.state_dict())
                elif epoch - best_epoch >= settings.patience:
                    break
        if held_out is None:
            return model, metrics, epochs
        model.load_state_dict(best_state)
        return model, metrics, best_epoch

    def start(self, rows: Tensor) -> Classifier:
        """Return a classifier with a copy of the encoder, whose head is fitted to the features of these rows."""
        encoder = copy.deepcopy(self.run.encoder).to(self.device)
        model = Classifier(encoder, nn.Linear(1, 1), bool(self.settings.include_inputs))
        x = EncodedSource(_Representation(model), self.source.take(rows), self.device).features().float()
        mean, std = x.mean(0), x.std(0, correction=0)
        std = torch.where(std > 1e-6 * std.max(), std, torch.inf)
        n_inputs = 0
        if self.settings.include_inputs:
            inputs = EncodedSource(nn.Sequential(encoder[0], nn.Flatten()), self.source.take(rows[:1]), self.device)
            n_inputs = inputs.features().shape[1]
        targets = self.targets(self.labels[rows])
        fitted = fit_linear(((x - mean) / std)[None], targets[None], self.n_classes, n_inputs=n_inputs)
        model.head = nn.Linear(x.shape[1], self.n_classes, device=self.device)
        with torch.no_grad():  # the standardization becomes part of the weights
            weight = fitted.weight[0] / std[:, None]  # (F, C)
            model.head.weight.copy_(weight.T)
            model.head.bias.copy_(fitted.bias[0] - mean @ weight)
        return model

    def loss(self, model: Classifier, x: Batch, labels: Tensor | None) -> Tensor:
        """Return the loss of a batch of training samples. Batch normalization keeps the statistics of pretraining."""
        assert labels is not None
        model.eval()
        (x,) = self.views(map_fields(lambda x: x.to(self.device), x))
        targets = self.targets(labels.to(self.device))
        if self.settings.mix == "none":
            return self.losses(model.score(x), targets).mean()
        mixed, mix = MixUp(self.settings.alpha)(x)
        scores = model.score(mixed)
        losses, partner_losses = self.losses(scores, targets), self.losses(scores, targets[mix.partner])
        return (mix.lam * losses + (1 - mix.lam) * partner_losses).mean()

    def losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample, (N,)."""
        if targets.is_floating_point():
            return (scores[:, 0] - targets).square() / 2
        return F.cross_entropy(scores, targets, self.class_weights, reduction="none")

    def targets(self, labels: Tensor) -> Tensor:
        """Return classes unchanged, and standardized numbers."""
        return (labels - self.center) / self.scale if labels.is_floating_point() else labels

    def losses_on(self, model: Classifier, rows: Tensor) -> Tensor:
        """Return the losses of held-out rows, (N,)."""
        scores = EncodedSource(model, self.source.take(rows), self.device).features()
        return self.losses(scores, self.targets(self.labels[rows]))


class _Pretraining:
    """The run's pretraining loss on random batches of all samples, labeled or not."""

    def __init__(self, run: Run, encoder: nn.Sequential, data: Data, device: torch.device) -> None:
        settings = run.settings
        if settings.supervised or run.user_supplied:
            raise InputError("`unlabeled_weight` needs a run with a built-in method that uses no labels")
        width = infer_width(encoder[1])
        assert width is not None
        self.learner = build_method(settings, encoder[1], build_mix(settings), width, 0).to(device)
        self.views = Views(build_view(settings, data, encoder[0]), self.learner.n_views).to(device)
        self.source, self.batch_size = data.train.to(device), min(settings.batch_size, len(data.train))
        # Rows in memory are standardized once before pretraining, so their views are not.
        in_memory = isinstance(data.train, TensorSource) and len(data.train.shape or ()) != 3 and data.clip is None
        self.preprocess = encoder[0] if in_memory else nn.Identity()

    def new_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the projection head."""
        return [weight for name, weight in self.learner.named_parameters() if not name.startswith("encoder.")]

    def loss(self) -> Tensor:
        """Return the loss of one batch."""
        rows = torch.randint(len(self.source), (self.batch_size,))
        batch, _ = next(iter(self.source.batches([rows])))
        self.learner.train()
        return self.learner(*self.views(self.preprocess(to_float(batch))))


class _Representation(nn.Module):
    """What a classifier's head sees, as an encoder."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Batch) -> Tensor:
        return self.model.represent(self.model.encoder[0](x))
