"""The training metrics of a run under the names that are shown."""

from collections.abc import Mapping

SHOWN_METRICS = {  # the most important first; alignment and uniformity are in the report
    "loss": ("loss", "{:.4f}"),
    "knn": ("kNN", "{:.1%}"),
    "effective_rank": ("effective rank", "{:.0f}"),
    "batch_1nn": ("1-NN in batch", "{:.0%}"),
}


def describe_metrics(latest: Mapping[str, float]) -> dict[str, str]:
    """Return those of the latest metrics that are shown, by their name, as text.

    >>> describe_metrics({"step": 50, "loss": 2.5, "effective_rank": 31.4})
    {'loss': '2.5000', 'effective rank': '31'}
    """
    return {label: text.format(latest[name]) for name, (label, text) in SHOWN_METRICS.items() if name in latest}
