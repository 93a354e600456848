"""The scikit-learn interface: `IMixTransformer`, `IMixClassifier` and `IMixRegressor`."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
    clone,
)
from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.extmath import softmax
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from imix.data import Table, TensorSource
from imix.data.arrays import checked_input, is_missing, note_minus_one
from imix.data.tables.frame import Frame, as_frame, is_frame
from imix.probes.features import EncodedSource
from imix.run import as_run
from imix.run.classifier import Classifier
from imix.settings import SUPERVISED, DataSettings, Settings
from imix.train.finetune import finetune
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
    resampling : float or None, default=None
        Probability that a cell of a view is replaced with that column's value in another row of the batch. None means
        0.3.
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
    epochs : int or "auto", default=100
        Number of training epochs. "auto" chooses it by the number of rows.
    batch_size : int or "auto", default=256
        Rows per step. Reduced to the number of rows if there are fewer. "auto" chooses it by the number of rows.
    minutes : float or None, default=None
        With ``epochs="auto"``, the time that training may take.
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
        resampling: float | None = None,
        augment_columns: tuple[str, ...] = (),
        columns: Mapping[str, str] | None = None,
        encoder: str = "small",
        head: str | None = None,
        dim: int = 128,
        temperature: float = 0.2,
        queue: int = 4096,
        momentum: float = 0.999,
        symmetric: bool = False,
        epochs: int | str = 100,
        batch_size: int | str = 256,
        minutes: float | None = None,
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
        self.minutes = minutes
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
        settings = self._settings(int(check_random_state(self.random_state).randint(2**31 - 1)))
        frame, _ = self._validate(X, reset=True)
        data_settings = DataSettings(columns=dict(self.columns or {}))
        labels = y if settings.supervised else None
        run = pretrain(frame, settings, data_settings, labels=labels, minutes=self.minutes, progress=self.verbose)
        assert run.table is not None  # a frame is always encoded as a table
        self.table_: Table = run.table
        self.encoder_ = run.encoder.cpu()
        self.history_ = run.metrics
        self._n_features_out = self.encoder_[-1].width
        return self

    def _settings(self, seed: int) -> Settings:
        not_settings = ("random_state", "verbose", "columns", "minutes")
        parameters = {name: value for name, value in self.get_params().items() if name not in not_settings}
        return Settings(**parameters, seed=seed)

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
        return _apply(self.encoder_, self.table_.encode(frame), dtype)

    def _validate(self, X: Any, reset: bool) -> tuple[Frame, torch.dtype]:
        """X as a frame, after scikit-learn's checks, and the precision of the features."""
        if is_frame(X):
            validate_data(self, X, skip_check_array=True, reset=reset)
            return as_frame(X, "X"), torch.float32
        array = validate_data(
            self,
            checked_input(X),
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


class _FineTuned(BaseEstimator):  # type: ignore[misc]
    """What `IMixClassifier` and `IMixRegressor` have in common."""

    def __init__(
        self,
        transformer: Any = None,
        *,
        include_inputs: bool = True,
        epochs: int = 60,
        batch_size: int = 64,
        lr: float = 1e-3,
        encoder_lr: float = 1e-4,
        unlabeled_weight: float = 0.0,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.transformer = transformer
        self.include_inputs = include_inputs
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.encoder_lr = encoder_lr
        self.unlabeled_weight = unlabeled_weight
        self.device = device
        self.random_state = random_state

    def _fit(self, X: Any, labels: np.ndarray) -> Self:
        """Pretrain on the rows of X, and fine-tune with labels (N,): classes, where -1 means none, or numbers."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        transformer: Any = IMixTransformer(random_state=seed) if self.transformer is None else clone(self.transformer)
        transformer.fit(X, None)
        self.transformer_: IMixTransformer = getattr(transformer, "estimator", transformer)  # of a FrozenEstimator
        frame, _ = self.transformer_._validate(X, reset=False)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.transformer_, name):
                setattr(self, name, getattr(self.transformer_, name))
        rows = TensorSource(torch.from_numpy(self.transformer_.table_.encode(frame)), torch.from_numpy(labels))
        names = ("include_inputs", "epochs", "batch_size", "lr", "encoder_lr", "unlabeled_weight", "device")
        options: Any = {name: getattr(self, name) for name in names}
        run = as_run(self.transformer_.encoder_)
        run.config = replace(run.config, settings=self.transformer_._settings(seed))
        tuned = finetune(run, rows, seed=seed, **options)
        assert tuned.head is not None
        self.model_ = Classifier(tuned.encoder, tuned.head, self.include_inputs)
        self.history_ = tuned.metrics
        return self

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        frame, dtype = self.transformer_._validate(X, reset=False)
        return _apply(self.model_, self.transformer_.table_.encode(frame), dtype)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class IMixClassifier(ClassifierMixin, _FineTuned):  # type: ignore[misc]
    """Classify rows of a table with features learned from all rows, labeled or not.

    `fit` trains an encoder on X without labels, then fine-tunes it with the labels. Rows whose label is missing (NaN or
    None) are used only to train the encoder.

    Parameters
    ----------
    transformer : IMixTransformer, optional
        Trains the encoder. To fine-tune an encoder that is already fitted, for example on many more rows, pass
        ``sklearn.frozen.FrozenEstimator(transformer)``. Default: ``IMixTransformer()``.
    include_inputs : bool, default=True
        Pass the columns to the last layer, along with the features.
    epochs : int, default=60
        Maximum number of epochs of fine-tuning; fewer if the loss on held-out labels no longer improves.
    batch_size : int, default=64
        Rows per step of fine-tuning.
    lr, encoder_lr : float, default=1e-3 and 1e-4
        Learning rates of the last layer and of the encoder.
    unlabeled_weight : float, default=0.0
        Weight of the pretraining loss on all rows during fine-tuning. 0 leaves it out.
    device : str, default="auto"
        "auto", "cpu", "cuda" or "cuda:N".
    random_state : int, RandomState or None, default=None
        Seed of all random numbers.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The classes.
    transformer_ : IMixTransformer
        The pretrained transformer.
    history_ : list of dict
        Metrics of fine-tuning.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> transformer = imix.IMixTransformer(epochs=5, random_state=0)
    >>> imix.IMixClassifier(transformer, epochs=10, random_state=0).fit(X, y).predict_proba(X).shape
    (150, 3)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows X (N, F) and labels y (N,)."""
        y = _check_target(X, y)
        missing = np.array([value is None or value != value for value in y], bool)
        present = y[~missing]
        if y.dtype == object and all(isinstance(value, Real) for value in present):
            present = np.array(present.tolist())
        check_classification_targets(present)
        self.classes_, codes = np.unique(present, return_inverse=True)
        note_minus_one(map(str, self.classes_), "y", "NaN or None")
        labels = np.full(len(y), -1)
        labels[~missing] = codes
        return self._fit(X, labels)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, (N, C)."""
        return softmax(self._scores(X))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each row, (N,)."""
        scores = self._scores(X)
        return self.classes_[scores.argmax(1)]


class IMixRegressor(RegressorMixin, _FineTuned):  # type: ignore[misc]
    """Predict a number for rows of a table with features learned from all rows, labeled or not.

    Rows whose target is NaN are used only to train the encoder. Parameters and attributes are those of
    `IMixClassifier`, without the classes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> transformer = imix.IMixTransformer(epochs=5, random_state=0)
    >>> imix.IMixRegressor(transformer, epochs=10, random_state=0).fit(X, y).predict(X).shape
    (442,)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows X (N, F) and targets y (N,)."""
        y = check_array(
            _check_target(X, y), ensure_2d=False, dtype=np.float32, ensure_all_finite="allow-nan", input_name="y"
        )
        return self._fit(X, y)

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted number of each row, (N,)."""
        return self._scores(X)[:, 0]


def _check_target(X: Any, y: Any) -> np.ndarray:
    """Return y as an array (N,); raise ValueError if it is missing or does not fit X."""
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None")
    check_consistent_length(X, y)
    is_masked = np.ma.getmaskarray(y) if isinstance(y, np.ma.MaskedArray) else False
    y = column_or_1d(y, warn=True)
    masked = np.zeros(len(y), bool) | is_masked
    if y.dtype == object:  # may have pandas.NA
        masked = masked | np.array([is_missing(value) for value in y], bool)
    if masked.any():
        y = y.astype(object)
        y[masked] = None
    return y


def _apply(module: nn.Module, rows: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Apply a module to encoded rows in the precision of X, so that no row depends on the others of its batch."""
    source = TensorSource(torch.from_numpy(rows).to(dtype))
    return EncodedSource(copy.deepcopy(module).to(dtype), source, torch.device("cpu")).features().numpy()
