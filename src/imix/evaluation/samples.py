"""The samples of an evaluation: features or inputs of training and test samples, with their labels."""

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from imix.data import Data, TensorSource
from imix.encoders.standardize import Standardize
from imix.errors import InputError
from imix.probes.features import EncodedSource


@dataclass(frozen=True)
class Samples:
    """One representation of training samples (n, F) and test samples (m, F), with their labels.

    Labels are classes; or numeric targets, if `n_classes` is 1. Without labels `n_classes` is 0. If inputs and features
    are side by side, the first `n_inputs` columns are the inputs; otherwise `n_inputs` is 0.
    """

    train: Tensor
    test: Tensor
    labels: Tensor
    test_labels: Tensor
    n_classes: int
    n_inputs: int = 0

    def standardized(self) -> "Samples":
        """Return the samples with the mean and standard deviation of the training samples removed."""
        mean, std = self.train.mean(0), self.train.std(0, correction=0)
        std = torch.where(std > 1e-6 * std.max(), std, torch.inf)  # constant columns become 0
        return replace(self, train=(self.train - mean) / std, test=(self.test - mean) / std)


def encode(encoder: nn.Module, data: Data, device: torch.device, divide: bool = False) -> Samples:
    """Return the features and labels of all training and test samples.

    With `divide`, the ranks share the work, and only rank 0 has all features.
    """
    assert data.test is not None
    train, test = EncodedSource(encoder, data.train, device), EncodedSource(encoder, data.test, device)
    features = train.features(divide).float(), test.features(divide).float()
    if data.train.labels is None:
        return Samples(*features, torch.empty(0), torch.empty(0), 0)
    n_classes = 1 if data.train.is_numeric else data.n_classes
    return Samples(*features, train.labels(), test.labels(), n_classes)


def combined(inputs: Samples, features: Samples) -> Samples:
    """Return inputs and features side by side, both standardized."""
    inputs, features = inputs.standardized(), features.standardized()
    train, test = torch.cat([inputs.train, features.train], 1), torch.cat([inputs.test, features.test], 1)
    return replace(features, train=train, test=test, n_inputs=inputs.train.shape[1])


def as_representation(encoder: nn.Sequential, data: Data, representation: str) -> nn.Module:
    """Return the encoder, or for "inputs" only its preprocessing."""
    if representation == "features":
        return encoder
    if data.train.shape is None:
        raise InputError(f"`inputs` needs samples with one field; samples of {data.name} have several")
    return nn.Sequential(encoder[0], nn.Flatten())


def restandardized(encoder: nn.Sequential, data: Data) -> nn.Sequential:
    """Return a copy of the encoder with its standardization fitted to the training samples of `data`."""
    encoder = copy.deepcopy(encoder)
    if not isinstance(encoder[0], Standardize) or not isinstance(data.train, TensorSource):
        raise InputError(
            f"`restandardize` needs a run that standardizes its inputs, and data in memory; got {data.name}"
        )
    encoder[0].fit(data.train.inputs)
    return encoder
