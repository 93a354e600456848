"""The scikit-learn interface: `IMixTransformer`."""

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from imix.data import Table, TensorSource
from imix.data.loading import fill_masked
from imix.data.tables.frame import Frame, as_frame, is_frame
from imix.probes.features import EncodedSource
from imix.settings import SUPERVISED, DataSettings, Settings
from imix.train.pretrain import pretrain


class IMixTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learn features of a table with contrastive learning and i-Mix, without labels.

    `fit` trains an encoder on the rows of X; `transform` returns its features. X is an array of numbers or a data frame
    (pandas, polars, arrow) with columns of any type. Missing values are allowed in both.

    Parameters
    ----------
    method : {"npair", "simclr", "moco", "byol", "supclr", "supnpair", "supervised"}, default="npair"
        The training method. The last three need `y`; the others ignore it.
    mix : {"mixup", "none"}, default="mixup"
        Whether to mix inputs and virtual labels (i-Mix), or to train the plain method.
    alpha : float, default=1.0
        Parameter of the Beta(alpha, alpha) distribution of the mixing weight.
    input_mix : int, default=0
        Number of auxiliary samples that InputMix blends into each view. 0 disables it.
    masking : float or None, default=None
        Probability that a cell of a view is set to 0. None means 0.2.
    resampling : float, default=0.0
        Probability that a cell of a view is replaced by the same column of another row in the batch.
    augment_columns : tuple of str, default=()
        Columns that masking and resampling apply to, by name or type. Empty means all.
    columns : dict of str to str, optional
        Types of columns that should not be inferred, such as ``{"zip": "categorical", "id": "drop"}``. Types are
        numeric, boolean, categorical, datetime and drop.
    encoder : str, default="small"
        Name of the encoder: "small", "mlp", or "mlp:256-256-1024" with explicit layer widths.
    head : {"mlpbn", "mlpbn1", "mlp", "linear"} or None, default=None
        Projection head. None means "mlpbn", or "mlpbn1" for moco and byol.
    dim : int, default=128
        Dimension of the projected embedding on which the loss is computed.
    temperature : float, default=0.2
        Temperature of the softmax.
    queue : int, default=4096
        Number of keys in MoCo's queue.
    momentum : float, default=0.999
        EMA momentum of the momentum encoder of moco and byol.
    symmetric : bool, default=False
        Use both views as anchors and as keys in moco and byol, at twice the cost.
    epochs : int, default=100
        Number of training epochs.
    batch_size : int, default=256
        Rows per step. Reduced to the number of rows if there are fewer.
    optimizer : {"sgd", "adamw"}, default="sgd"
        The optimizer.
    lr : float or None, default=None
        Learning rate for a batch of 256; it is scaled by the batch size. None means 0.125 for sgd, 0.001 for adamw.
    weight_decay : float, default=1e-4
        Weight decay of all parameters.
    device : str, default="auto"
        "auto", "cpu", "cuda" or "cuda:N".
    random_state : int, RandomState or None, default=None
        Seed of all random numbers.
    verbose : bool, default=False
        Show progress on stderr.

    Attributes
    ----------
    table_ : imix.data.Table
        Encoding of the columns as numbers.
    encoder_ : nn.Sequential
        The trained encoder, from those numbers (N, width) to features (N, F).
    history_ : list of dict
        Training metrics, such as step, epoch and loss.
    n_features_in_ : int
        Number of columns seen in `fit`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> imix.IMixTransformer(epochs=2, random_state=0).fit(X).transform(X).shape
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
        """Train the encoder on the rows of X.

        Parameters
        ----------
        X : array or data frame of shape (N, F)
            The rows to train on.
        y : array of shape (N,), optional
            Labels, used by the supervised methods only.

        Returns
        -------
        self
        """
        not_settings = ("random_state", "verbose", "columns")
        parameters = {name: value for name, value in self.get_params().items() if name not in not_settings}
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        settings = Settings(**parameters, seed=seed)
        frame, _ = self._validate(X, reset=True)
        data_settings = DataSettings(columns=dict(self.columns or {}))
        run = pretrain(frame, settings, data_settings, labels=y if settings.supervised else None, progress=self.verbose)
        assert run.table is not None  # a frame is always encoded as a table
        self.table_: Table = run.table
        self.encoder_ = run.encoder.cpu()
        self.history_ = run.metrics
        self._n_features_out = self.encoder_[-1].width
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Compute the features of rows.

        Parameters
        ----------
        X : array or data frame of shape (N, F)
            Rows with the columns that were seen in `fit`.

        Returns
        -------
        ndarray of shape (N, n_features_out)
            Features, in the floating-point precision of X.
        """
        check_is_fitted(self)
        frame, dtype = self._validate(X, reset=False)
        # In the precision of X, so that a row's features do not depend on the other rows of the batch.
        rows = TensorSource(torch.from_numpy(self.table_.encode(frame)).to(dtype))
        encoder = copy.deepcopy(self.encoder_).to(dtype)
        features: np.ndarray = EncodedSource(encoder, rows, torch.device("cpu")).features().numpy()
        return features

    def _validate(self, X: Any, reset: bool) -> tuple[Frame, torch.dtype]:
        """X as a frame, after scikit-learn's checks, and the precision of the features."""
        if is_frame(X):
            validate_data(self, X, skip_check_array=True, reset=reset)
            return as_frame(X, "X"), torch.float32
        array = validate_data(
            self,
            fill_masked(X),
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
