"""The kernels of imix.fused, through Triton's interpreter on a CPU, against the dense form in float64."""

import json
import os
import subprocess
import sys

import pytest

SIZES = [(70, 130, 20), (64, 64, 128), (100, 1, 3), (5, 300, 16), (129, 200, 33), (1, 65, 256)]
CASES = [(*sizes, own, scale) for sizes in SIZES for own in (False, True) for scale in (0.1, 3.0) if sizes[1] > own]
PROGRAM = """
import json, sys, torch
from imix.fused import LogSumExp
found = []
for n, columns, dim, own, scale in json.loads(sys.argv[1]):
    torch.manual_seed(n)
    q, k, grad = scale * torch.randn(n, dim), torch.randn(columns, dim), torch.randn(n)
    own = torch.arange(n) % columns if own else None
    results = []
    for dtype in (torch.float32, torch.float64):
        a, b = (x.detach().to(dtype, copy=True).requires_grad_() for x in (q, k))
        if dtype == torch.float32:
            value = LogSumExp.apply(a, b, own)
        else:
            logits = a @ b.T
            value = (logits if own is None else logits.scatter(1, own[:, None], float("-inf"))).logsumexp(1)
        (value * grad.to(dtype)).sum().backward()
        results.append((value.detach(), a.grad, b.grad))
    found.append([float((x - y).abs().max() / y.abs().max()) for x, y in zip(*results)])
alone = torch.randn(9, 8)
keys = LogSumExp.apply(alone.requires_grad_(), torch.randn(7, 8), None)
keys.sum().backward()  # keys without a gradient, as those of a queue
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def differences():
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, json.dumps(CASES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_and_gradients_are_those_of_the_dense_form(differences, case):
    pytest.importorskip("triton")
    assert max(differences[case]) < 1e-4
