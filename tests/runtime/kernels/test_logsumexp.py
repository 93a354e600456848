"""The log-sum-exp kernels, run on a CPU by Triton's interpreter, compared with the dense form in float64."""

import json
import os
import subprocess
import sys

import pytest

SIZES = [(70, 130, 20), (64, 64, 128), (100, 1, 3), (5, 300, 16), (129, 200, 33), (1, 65, 256)]  # n, N, D
CASES = [
    (*sizes, exclude_self, scale)
    for sizes in SIZES
    for exclude_self in (False, True)
    for scale in (0.1, 3.0)
    if sizes[1] > exclude_self
]
PROGRAM = """
import json, sys, torch
from imix.runtime.kernels.logsumexp import LogSumExp
errors = []
for n, columns, dim, exclude_self, scale in json.loads(sys.argv[1]):
    torch.manual_seed(n)
    q, k, grad = scale * torch.randn(n, dim), torch.randn(columns, dim), torch.randn(n)
    self_index = torch.arange(n) % columns if exclude_self else None
    results = []
    for dtype in (torch.float32, torch.float64):
        a, b = (x.detach().to(dtype, copy=True).requires_grad_() for x in (q, k))
        if dtype == torch.float32:
            value = LogSumExp.apply(a, b, self_index)
        else:
            logits = a @ b.T
            if self_index is not None:
                logits = logits.scatter(1, self_index[:, None], float("-inf"))
            value = logits.logsumexp(1)
        (value * grad.to(dtype)).sum().backward()
        results.append((value.detach(), a.grad, b.grad))
    errors.append([float((x - y).abs().max() / y.abs().max()) for x, y in zip(*results)])
q = torch.randn(9, 8, requires_grad=True)
LogSumExp.apply(q, torch.randn(7, 8), None).sum().backward()  # keys without a gradient, such as those of a queue
print(json.dumps(errors))
"""


@pytest.fixture(scope="module")
def relative_errors():
    pytest.importorskip("triton")
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, json.dumps(CASES)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    return dict(zip(CASES, json.loads(process.stdout), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_and_gradients_are_those_of_the_dense_form(relative_errors, case):
    assert max(relative_errors[case]) < 1e-4
