"""Training, kernels, evaluation and detection on a CUDA device, compared with plain torch or with a CPU.

`make gpu` runs these tests. IMIX_GPU_TESTS_DEVICE=cpu runs them on a CPU, to check the tests themselves.
"""

import os

import numpy as np
import pytest
import torch

import imix
from imix.augment.image import cifar
from imix.detection import Detection, detect
from imix.explore.neighbors import nearest
from imix.reproduce.fake_data import fake_voc
from imix.run import checkpoint
from imix.runtime import logsumexp

DEVICE = os.environ.get("IMIX_GPU_TESTS_DEVICE", "cuda")
METHODS = ["npair", "simclr", "moco", "byol", "supclr", "supnpair", "supervised"]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(autouse=True)
def deterministic(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)


def rows(n: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 12, generator=generator), torch.arange(n) % 4


def images(n: int = 64, size: int = 32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator)


def train(x, labels=None, **options):
    defaults = {"device": DEVICE, "precision": "fp32", "compile": False, "batch_size": 32, "queue": 64, "epochs": 5}
    return imix.pretrain(x, labels=labels, progress=False, **defaults | options)


def losses(run) -> list[float]:
    return [record["loss"] for record in run.metrics]


@pytest.mark.parametrize("mix", ["none", "mixup"])
@pytest.mark.parametrize("method", METHODS)
def test_a_step_captured_as_a_cuda_graph_equals_the_eager_step(method, mix):
    x, labels = rows()
    eager, captured = (
        train(x, labels, method=method, mix=mix, encoder="mlp:32-32-64", cuda_graph=graph) for graph in (False, True)
    )
    assert losses(captured) == pytest.approx(losses(eager), rel=1e-4)


@pytest.mark.parametrize("method", ["npair", "moco", "byol"])
def test_a_captured_step_on_augmented_images_equals_the_eager_step(method):
    options = {"method": method, "encoder": "resnet18", "augment": "cifar", "epochs": 4}
    eager, captured = (train(images(), **options, cuda_graph=graph) for graph in (False, True))
    assert losses(captured) == pytest.approx(losses(eager), rel=1e-3)


@pytest.mark.parametrize(("n", "columns", "width"), [(100, 260, 16), (513, 1000, 128), (64, 4096, 200)])
@pytest.mark.parametrize("excludes_self", [False, True])
def test_the_streamed_log_sum_exp_equals_the_dense_one(n, columns, width, excludes_self, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.nn.functional.normalize(torch.randn(m, width, generator=generator), dim=1) for m in (n, columns))
    self_index = torch.arange(n) if excludes_self else None
    results = []
    for device, dtype, largest_block in (("cpu", torch.float64, 2**60), (DEVICE, torch.float32, 0)):
        monkeypatch.setattr(logsumexp, "LARGEST_BLOCK", largest_block)
        a, b = ((5 * x).to(device, dtype).requires_grad_() for x in (q, k))
        value = logsumexp.log_sum_exp(a, b, None if self_index is None else self_index.to(device))
        value.square().sum().backward()
        results.append([x.detach().cpu().double() for x in (value, a.grad, b.grad)])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [16, 32, 64])
def test_the_image_kernel_equals_the_plain_transforms(size):
    x = images(48, size).float() / 255
    (view,) = cifar(size)
    uniforms = torch.rand(48, view.n_draws, generator=torch.Generator().manual_seed(1))
    expected = view.transform(x, uniforms)
    actual = view.transform(x.to(DEVICE), uniforms.to(DEVICE))
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_neighbors_on_a_gpu_are_those_on_a_cpu():
    bank = torch.nn.functional.normalize(rows(300)[0], dim=1)
    for queries in (None, bank[:7] + 0.01):
        found, expected = nearest(bank, queries, 5, DEVICE), nearest(bank, queries, 5, "cpu")
        assert found.indices.tolist() == expected.indices.tolist()
        np.testing.assert_allclose(found.similarities, expected.similarities, atol=1e-5)


def test_evaluation_on_the_device_agrees_with_a_cpu_and_leaves_the_encoder_where_it_was():
    run = imix.pretrain("digits", epochs=3, device=DEVICE, precision="fp32", progress=False)
    for protocol in ("linear", "knn", "pinv"):
        on_device, on_cpu = (imix.evaluate(run, "digits", protocol, device=device) for device in (DEVICE, "cpu"))
        assert on_device.value == pytest.approx(on_cpu.value, abs=0.01)
    assert {parameter.device.type for parameter in run.encoder.parameters()} == {"cpu"}


def test_a_killed_run_resumes_with_the_same_losses(tmp_path, monkeypatch):
    x, labels = rows()
    options = {"method": "moco", "encoder": "mlp:32-32-64", "checkpoint_minutes": 0}
    expected = losses(train(x, labels, **options))
    save, saved = checkpoint.save, []

    def save_and_stop(path, state):
        save(path, state)
        saved.append(path)
        if len(saved) == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        train(x, labels, **options, out=tmp_path / "run")
    monkeypatch.setattr(checkpoint, "save", save)
    resumed = train(x, labels, **options, out=tmp_path / "run", resume=True)
    assert losses(resumed) == pytest.approx(expected, rel=1e-4)


def test_a_detector_is_fine_tuned(tmp_path):
    run = train(images(32), encoder="resnet18:standard", epochs=1)
    quick = Detection(iterations=2, batch_size=2, warmup=1, milestones=(1,), precise_bn=1, min_sizes=(64,))
    result = detect(run, fake_voc(tmp_path / "voc"), quick, DEVICE, progress=False)
    assert 0 <= result.value <= 1
