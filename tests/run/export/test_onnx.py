"""ONNX graphs give the same features as the encoder in ONNX Runtime, for any batch size."""

import numpy as np
import onnxruntime
import pytest
import torch

from imix import InputError
from imix.run.export import export
from imix.run.export.onnx import trace
from imix.run.stored_encoder import save_encoder
from tests.run.export.runs import RUNS, build_run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", RUNS)
def test_onnx_runtime_gives_the_same_features_for_any_batch_size(tmp_path, kind):
    run = RUNS[kind]()
    shape = run.config.architecture.shape
    instructions = export(run, "onnx", tmp_path / "x.onnx")
    assert instructions.startswith(f"inputs: float32 (N, {', '.join(map(str, shape))})")
    session = onnxruntime.InferenceSession(tmp_path / "x.onnx")
    for n in (1, 3, 8):
        x = torch.rand(n, *shape)
        (features,) = session.run(["features"], {"inputs": x.numpy()})
        np.testing.assert_allclose(features, run.encoder(x).detach().numpy(), rtol=1e-3, atol=1e-4)
    assert [path.name for path in tmp_path.iterdir()] == ["x.onnx"]


def test_an_encoder_file_is_exported_too(tmp_path):
    run = build_run("small", (5,))
    save_encoder(tmp_path / "encoder.safetensors", run.encoder.state_dict(), run.config.architecture)
    export(tmp_path / "encoder.safetensors", "onnx", tmp_path / "x.onnx")
    x = torch.rand(2, 5)
    (features,) = onnxruntime.InferenceSession(tmp_path / "x.onnx").run(["features"], {"inputs": x.numpy()})
    np.testing.assert_allclose(features, run.encoder(x).detach().numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["resnet, small stem", "small, rows", "small, audio"])
def test_the_traced_graph_takes_any_batch_size_and_includes_preprocessing(kind):
    run = RUNS[kind]()
    shape = run.config.architecture.shape
    program = trace(run.encoder, shape).module()
    for n in (1, 5):
        x = torch.rand(n, *shape)
        torch.testing.assert_close(program(x), run.encoder(x))


def test_onnx_without_its_packages_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="needs the extra"):
        export(build_run("small", (5,)), "onnx", tmp_path / "x.onnx")
