"""Baselines shown below the runs of a report: the raw inputs, and always predicting the most frequent class."""

from collections.abc import Sequence
from dataclasses import replace

from imix.evaluation import Result
from imix.reports.groups import INPUTS_SUFFIX, RunGroup


def split_baselines(groups: Sequence[RunGroup]) -> tuple[list[RunGroup], list[RunGroup]]:
    """Move baselines that are the same for all groups of a column to separate rows.

    If the groups disagree on a result of the inputs (they may have used different columns of a table), or if one of
    them lacks it, each group keeps its own result in an extra column.
    """
    inputs: dict[str, list[Result]] = {}
    most_frequent: dict[str, list[Result]] = {}
    columns = dict.fromkeys(column for group in groups for column in group.results)
    for column in columns:
        results = [result for group in groups for result in group.results.get(column, [])]
        if _agree([result.metrics.get("majority_accuracy") for result in results]):
            result = next(result for result in results if "majority_accuracy" in result.metrics)
            most_frequent[column] = [replace(result, metrics={result.metric: result.metrics["majority_accuracy"]})]
        input_results = [group.results.get(column + INPUTS_SUFFIX, []) for group in groups if column in group.results]
        if all(input_results) and _agree([result.value for results in input_results for result in results]):
            inputs[column] = input_results[0][:1]
    moved = {column + INPUTS_SUFFIX for column in inputs}
    remaining = [
        replace(group, results={column: results for column, results in group.results.items() if column not in moved})
        for group in groups
    ]
    rows = [RunGroup("inputs", [], inputs), RunGroup("most frequent class", [], most_frequent)]
    return remaining, [row for row in rows if row.results]


def _agree(values: Sequence[float | None]) -> bool:
    """Whether at least one value is not None, and all of those are equal."""
    numbers = [value for value in values if value is not None]
    return bool(numbers) and max(numbers) - min(numbers) <= 1e-9
