"""Pytest setup: one thread per process, names that doctests use, and the marker of tests that start processes."""

import inspect
import signal
from collections.abc import Iterator
from types import CodeType

import pytest
import torch

import imix

torch.set_num_threads(1)  # so that several test processes can run in parallel
# A shell starts background jobs with SIGINT ignored, and the processes that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, object]) -> None:
    torch.manual_seed(0)
    doctest_namespace.update(torch=torch, imix=imix)


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that use the modules subprocess or multiprocessing, directly or through fixtures and helpers."""
    known: dict[object, bool] = {}
    for item in items:
        if isinstance(item, pytest.Function):
            fixtures = [definitions[-1].func for definitions in item._fixtureinfo.name2fixturedefs.values()]
            if any(_starts_processes(function, known) for function in (item.function, *fixtures)):
                item.add_marker(pytest.mark.subprocess)


def _starts_processes(value: object, known: dict[object, bool]) -> bool:
    """Whether a module starts processes, or a function or class of the tests uses one that does."""
    if inspect.ismodule(value) or not getattr(value, "__module__", "").startswith("tests."):
        name = value.__name__ if inspect.ismodule(value) else type(value).__module__
        return name.split(".")[0] in ("subprocess", "multiprocessing") or name == "torch.multiprocessing"
    if inspect.isclass(value):
        return any(_starts_processes(part, known) for part in vars(value).values() if inspect.isfunction(part))
    if not inspect.isfunction(value):
        return False
    if value not in known:
        known[value] = False  # ends recursion
        names = {name for code in _nested_code(value.__code__) for name in code.co_names}
        known[value] = any(_starts_processes(value.__globals__.get(name), known) for name in names)
    return known[value]


def _nested_code(code: CodeType) -> Iterator[CodeType]:
    """Return the code of a function and of the functions inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_code(constant)
