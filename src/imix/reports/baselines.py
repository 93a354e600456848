"""What arms are to be compared with: the inputs without an encoder, and the answer that is always the same."""

from collections.abc import Sequence
from dataclasses import replace

from imix.evaluation import Result
from imix.reports.arms import OF_INPUTS, Arm


def set_apart(arms: Sequence[Arm]) -> tuple[list[Arm], list[Arm]]:
    """The arms, and the baselines that all arms of a column agree on, as rows of their own.

    Where arms do not agree on a result of the inputs, as where they saw other columns of a table, or where one does not
    have it, it stays with the arm, in a column of its own.
    """
    inputs: dict[str, list[Result]] = {}
    frequent: dict[str, list[Result]] = {}
    columns = dict.fromkeys(column for arm in arms for column in arm.results)
    for column in columns:
        results = [result for arm in arms for result in arm.results.get(column, [])]
        if _agree([result.details.get("majority_accuracy") for result in results]):
            known = next(result for result in results if "majority_accuracy" in result.details)
            frequent[column] = [replace(known, value=known.details["majority_accuracy"])]
        sides = [arm.results.get(f"{column}{OF_INPUTS}", []) for arm in arms if column in arm.results]
        if all(sides) and _agree([result.value for side in sides for result in side]):
            inputs[column] = sides[0][:1]
    gone = {f"{column}{OF_INPUTS}" for column in inputs}
    kept = [replace(arm, results={c: found for c, found in arm.results.items() if c not in gone}) for arm in arms]
    rows = [Arm("the inputs themselves", [], inputs), Arm("most frequent class", [], frequent)]
    return kept, [row for row in rows if row.results]


def _agree(values: Sequence[float | None]) -> bool:
    """Whether some are known, and all of these the same."""
    known = [value for value in values if value is not None]
    return bool(known) and max(known) - min(known) <= 1e-9
