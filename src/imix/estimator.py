"""The scikit-learn face: `IMixTransformer().fit(X).transform(X)`."""

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from imix.data import Table, Tensors, unmasked
from imix.data.frame import Frame, as_frame, is_frame
from imix.evaluation.features import Encoded
from imix.pretraining import pretrain
from imix.settings import SUPERVISED, Reading, Settings


class IMixTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Features of a table, learned without labels by contrastive learning with i-Mix.

    X is an array, whose columns are numbers, or a frame (pandas, polars, arrow), whose columns may be anything: what
    they are is found out, unless `columns` says it ({"zip": "categorical"}). Values may be missing in both.

    Parameters have the names, meanings and defaults of `imix.Settings`, but for `random_state` (there: seed), and
    `epochs`, which suits small tables. `y` is used by the methods supclr, supnpair and supervised only.

    Attributes: `table_`, how columns become numbers; `encoder_`, a torch module from those to features; `history_`,
    records with the loss along the way.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> IMixTransformer(epochs=2, random_state=0).fit(X).transform(X).shape
    (150, 256)
    """

    def __init__(
        self,
        method: str = "npair",
        mix: str = "mixup",
        *,
        alpha: float = 1.0,
        input_mix: int = 0,
        masking: float | None = None,
        resampling: float = 0.0,
        augment_columns: tuple[str, ...] = (),
        columns: Mapping[str, str] | None = None,
        encoder: str = "small",
        head: str | None = None,
        dim: int = 128,
        temperature: float = 0.2,
        queue: int = 4096,
        momentum: float = 0.999,
        symmetric: bool = False,
        epochs: int = 100,
        batch_size: int = 256,
        optimizer: str = "sgd",
        lr: float | None = None,
        weight_decay: float = 1e-4,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.mix = mix
        self.alpha = alpha
        self.input_mix = input_mix
        self.masking = masking
        self.resampling = resampling
        self.augment_columns = augment_columns
        self.columns = columns
        self.encoder = encoder
        self.head = head
        self.dim = dim
        self.temperature = temperature
        self.queue = queue
        self.momentum = momentum
        self.symmetric = symmetric
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.lr = lr
        self.weight_decay = weight_decay
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the rows of X, (N, F); returns self."""
        others = ("random_state", "verbose", "columns")
        parameters = {name: value for name, value in self.get_params().items() if name not in others}
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        settings = Settings(**parameters, seed=seed)
        frame, _ = self._validated(X, reset=True)
        reading = Reading(columns=dict(self.columns or {}))
        run = pretrain(frame, settings, reading, labels=y if settings.supervised else None, progress=self.verbose)
        assert run.table is not None  # frames are tables
        self.table_: Table = run.table
        self.encoder_ = run.encoder.cpu()
        self.history_ = run.metrics
        self._n_features_out = self.encoder_[-1].width
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Features of the rows of X, (N, width), in the precision of X."""
        check_is_fitted(self)
        frame, dtype = self._validated(X, reset=False)
        # In the precision of X, so that a row's features do not depend on the rows beside it.
        rows = Tensors(torch.from_numpy(self.table_.encode(frame)).to(dtype))
        encoder = copy.deepcopy(self.encoder_).to(dtype)
        features: np.ndarray = Encoded(encoder, rows, torch.device("cpu")).features().numpy()
        return features

    def _validated(self, X: Any, reset: bool) -> tuple[Frame, torch.dtype]:
        """X as a frame, after scikit-learn's own checks, and the precision of what comes out."""
        if is_frame(X):
            validate_data(self, X, skip_check_array=True, reset=reset)
            return as_frame(X, "X"), torch.float32
        array = validate_data(
            self,
            unmasked(X),
            dtype=[np.float64, np.float32],
            ensure_min_samples=2 if reset else 1,
            ensure_all_finite="allow-nan",
            reset=reset,
        )
        return as_frame(array, "X"), torch.float64 if array.dtype == np.float64 else torch.float32

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.method in SUPERVISED
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.non_deterministic = False
        return tags
