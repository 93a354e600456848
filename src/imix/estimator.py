"""The scikit-learn face: `IMixTransformer().fit(X).transform(X)`."""

import copy
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from imix.data import Tensors
from imix.data.arrays import from_arrays
from imix.evaluation.features import Encoded
from imix.settings import Settings
from imix.train.pretrain import pretrain


class IMixTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Features of a table, learned without labels by contrastive learning with i-Mix.

    Parameters have the names, meanings and defaults of `imix.Settings`, but for `random_state` (there: seed), and
    `epochs` and `batch_size`, which suit small tables. `y` is used by the methods supclr, supnpair and supervised only.

    Attributes: `encoder_`, a torch module from rows to features; `history_`, records with the loss along the way.

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
        masking: float = 0.0,
        encoder: str = "small",
        temperature: float = 0.2,
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
        self.encoder = encoder
        self.temperature = temperature
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
        parameters = {k: v for k, v in self.get_params().items() if k not in ("random_state", "verbose")}
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        settings = Settings(**parameters, seed=seed)
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        run = pretrain(from_arrays(X, y if settings.supervised else None, "X"), settings, progress=self.verbose)
        self.encoder_ = run.encoder.cpu()
        self.history_ = run.metrics
        self._n_features_out = self.encoder_[-1].width
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Features of the rows of X, (N, width), in the precision of X."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        # In the precision of X, so that a row's features do not depend on the rows beside it.
        rows = Tensors(torch.tensor(X))
        encoder = copy.deepcopy(self.encoder_).to(rows.inputs.dtype)
        features: np.ndarray = Encoded(encoder, rows, torch.device("cpu")).features().numpy()
        return features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.method in ("supclr", "supnpair", "supervised")
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.non_deterministic = False
        return tags
