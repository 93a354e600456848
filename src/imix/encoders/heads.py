"""Projection and prediction heads, with the names used in the authors' experiments."""

from torch import nn

from imix.errors import InputError

HEADS = ("mlpbn", "mlpbn1", "mlp", "linear")


def build_head(name: str, inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Build a projection or prediction head.

    Parameters
    ----------
    name : {"mlpbn", "mlpbn1", "mlp", "linear"}
        "mlpbn" is Linear-BN-ReLU-Linear-BN, "mlpbn1" omits the last batch normalization, "mlp" omits both, and
        "linear" is a single linear layer.
    inputs, hidden, outputs : int
        Number of input, hidden and output units.

    Returns
    -------
    nn.Sequential
        Maps (N, inputs) to (N, outputs).

    Examples
    --------
    >>> imix.encoders.build_head("mlp", 256, 256, 128)(torch.randn(8, 256)).shape
    torch.Size([8, 128])
    """
    if name not in HEADS:
        raise InputError(f"unknown head {name!r}; choose from {', '.join(HEADS)}")
    if name == "linear":
        return nn.Sequential(nn.Linear(inputs, outputs))
    layers: list[nn.Module] = [nn.Linear(inputs, hidden)]
    if name != "mlp":
        layers.append(nn.BatchNorm1d(hidden))
    layers += [nn.ReLU(inplace=True), nn.Linear(hidden, outputs)]
    if name == "mlpbn":
        layers.append(nn.BatchNorm1d(outputs))
    return nn.Sequential(*layers)
