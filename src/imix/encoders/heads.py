"""Projection and prediction heads, by the names of the paper's experiments."""

from torch import nn

from imix.errors import InputError

HEADS = ("mlpbn", "mlpbn1", "mlp", "linear")


def head(kind: str, inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """A head (N, inputs) -> (N, outputs).

    "mlpbn" is Linear-BN-ReLU-Linear-BN, "mlpbn1" the same without the last BN, "mlp" without any, "linear" one layer.
    """
    if kind not in HEADS:
        raise InputError(f"unknown head {kind!r}; choose from {', '.join(HEADS)}")
    if kind == "linear":
        return nn.Sequential(nn.Linear(inputs, outputs))
    layers: list[nn.Module] = [nn.Linear(inputs, hidden)]
    if kind != "mlp":
        layers.append(nn.BatchNorm1d(hidden))
    layers += [nn.ReLU(inplace=True), nn.Linear(hidden, outputs)]
    if kind == "mlpbn":
        layers.append(nn.BatchNorm1d(outputs))
    return nn.Sequential(*layers)
