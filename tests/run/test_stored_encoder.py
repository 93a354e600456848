"""encoder.safetensors: loading from a folder or the file alone, user-supplied encoders, invalid files."""

import pytest
import torch
from torch import nn

import imix
from imix import InputError, Settings

QUICK = Settings(epochs=1, batch_size=64, encoder="mlp:16-32", device="cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return imix.pretrain("digits", QUICK, out=tmp_path_factory.mktemp("runs") / "digits", progress=False)


def test_load_encoder_gives_the_same_features_from_a_folder_and_from_the_file_alone(run, tmp_path):
    x = torch.rand(7, 1, 8, 8)
    expected = run.encoder(x).detach()
    copied = tmp_path / "anything.safetensors"
    copied.write_bytes((run.path / "encoder.safetensors").read_bytes())
    for path in (run.path, str(run.path), copied):
        encoder = imix.load_encoder(path)
        assert not encoder.training
        assert torch.equal(encoder(x), expected)


def test_the_parts_are_named_and_the_last_one_is_the_plain_backbone(run):
    encoder = imix.load_encoder(run.path)
    assert [name for name, _ in encoder.named_children()] == ["preprocess", "encoder"]
    assert isinstance(encoder[-1], imix.encoders.MLP)
    imix.NPair(encoder[-1])  # it can be used in another method


def test_a_user_supplied_encoder_is_loaded_into_a_module(tmp_path):
    def build():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 6))

    run = imix.pretrain("digits", QUICK, encoder=build(), out=tmp_path / "run", progress=False)
    with pytest.raises(InputError, match="weights of a user-supplied encoder; pass the module"):
        imix.load_encoder(tmp_path / "run")
    x = torch.rand(3, 1, 8, 8)
    assert torch.equal(imix.load_encoder(tmp_path / "run", build())(x), run.encoder(x))
    with pytest.raises(InputError, match="do not match"):
        imix.load_encoder(tmp_path / "run", nn.Sequential(nn.Flatten(), nn.Linear(64, 7)))


def test_damaged_or_foreign_files_are_rejected(tmp_path):
    from safetensors.torch import save_file

    (tmp_path / "cut.safetensors").write_bytes(b"\x00\x01")
    save_file({"w": torch.ones(1)}, tmp_path / "foreign.safetensors")
    for name in ("cut", "foreign"):
        with pytest.raises(InputError, match="not an encoder written by imix"):
            imix.load_encoder(tmp_path / f"{name}.safetensors")
    with pytest.raises(InputError, match="no encoder at"):
        imix.load_encoder(tmp_path / "nothing.safetensors")


def test_load_encoder_of_a_run_points_to_its_encoder(run):
    with pytest.raises(InputError, match=r"for a Run, use run\.encoder"):
        imix.load_encoder(run)


def test_an_encoder_accepts_numbers_of_any_type():
    x = torch.randint(0, 2, (64, 5))
    run = imix.pretrain(x, Settings(epochs=1), progress=False)
    expected = torch.from_numpy(imix.embed(run, x))
    for dtype in (torch.int64, torch.float64, torch.bool):
        assert torch.equal(run.encoder(x.to(dtype)), expected)
