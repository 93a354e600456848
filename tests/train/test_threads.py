"""The number of torch threads during training on a CPU."""

import pytest
import torch
from torch import nn

import imix
from imix.train import threads
from imix.train.threads import pick_threads, torch_threads
from tests.train.helpers import SMALL, assert_same_weights, weights

NETWORK = nn.Conv2d(3, 8, 3, padding=1)
WORK = 3 * 2 * 3 * 8 * 9 * 16 * 16  # of one image of 16 x 16 pixels: forward and backward, products and sums
IMAGES = torch.randn(2, 3, 16, 16)


@pytest.fixture(autouse=True)
def four_threads(monkeypatch):
    """Torch with four threads that the user did not ask for."""
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with torch_threads(4):
        yield


def test_the_number_grows_with_the_work_of_a_step(monkeypatch):
    monkeypatch.setattr(threads, "WORK_PER_THREAD", 10 * WORK)
    chosen = {views: pick_threads(NETWORK, IMAGES, views) for views in (1, 19, 20, 30, 40, 1000)}
    assert chosen == {1: 1, 19: 1, 20: 2, 30: 3, 40: 4, 1000: 4}


def test_the_default_network_of_tables_has_one_thread_and_a_resnet_several():
    rows, images = torch.randn(2, 50), torch.randn(2, 3, 32, 32)
    assert pick_threads(imix.encoders.build("small", (50,)), rows, 512) == 1
    assert pick_threads(imix.encoders.build("resnet18", (3, 32, 32)), images, 512) == 4
    assert pick_threads(imix.encoders.build("resnet18", (3, 32, 32)), images, 32) == 1


def test_what_counts_is_the_work_of_a_layer(monkeypatch):
    monkeypatch.setattr(threads, "WORK_PER_THREAD", 10 * WORK)
    deeper = nn.Sequential(NETWORK, nn.Conv2d(8, 3, 3, padding=1))  # another layer with as much work
    assert pick_threads(deeper, IMAGES, 20) == pick_threads(NETWORK, IMAGES, 20) == 2


@pytest.mark.parametrize("name", threads.VARIABLES)
def test_environment_variables_decide(monkeypatch, name):
    monkeypatch.setenv(name, "4")
    assert pick_threads(NETWORK, IMAGES, 1) == 4


def test_a_smaller_number_of_the_user_is_kept():
    with torch_threads(2):
        assert pick_threads(NETWORK, IMAGES, 10**9) == 2


def test_counting_changes_neither_weights_nor_statistics():
    network = nn.Sequential(NETWORK, nn.BatchNorm2d(8))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    pick_threads(network, IMAGES, 1)
    assert_same_weights(before, network.state_dict())
    assert network.training


@pytest.mark.filterwarnings("error")
def test_a_compiled_network_is_counted_without_a_warning():
    assert pick_threads(torch.compile(NETWORK, backend="eager"), IMAGES, 1) == 1


def test_training_uses_the_number_and_restores_the_previous_one():
    seen = []
    imix.pretrain(torch.randn(64, 5), SMALL, progress=False, on_step=lambda state: seen.append(torch.get_num_threads()))
    assert set(seen) == {1}
    assert torch.get_num_threads() == 4


def test_the_number_is_restored_after_an_error():
    def fail(state):
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        imix.pretrain(torch.randn(64, 5), SMALL, progress=False, on_step=fail)
    assert torch.get_num_threads() == 4


def test_fine_tuning_uses_one_thread_for_a_small_network(monkeypatch):
    seen = []
    run = imix.pretrain(torch.randn(64, 5), SMALL, progress=False)
    step = torch.optim.AdamW.step
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda *a: seen.append(torch.get_num_threads()) or step(*a))
    imix.finetune(run, torch.randn(64, 5), labels=[0, 1] * 32, epochs=1)
    assert set(seen) == {1}
    assert torch.get_num_threads() == 4


def test_a_run_resumed_in_a_process_with_the_same_threads_is_identical(tmp_path):
    class Stop(Exception):
        pass

    def stop(state):
        if state.step == 5:
            raise Stop

    x = torch.randn(64, 5)
    whole = imix.pretrain(x, SMALL, progress=False)
    with pytest.raises(Stop):
        imix.pretrain(x, SMALL, out=tmp_path / "run", progress=False, on_step=stop)
    resumed = imix.pretrain(x, SMALL, out=tmp_path / "run", resume=True, progress=False)
    assert_same_weights(weights(whole), weights(resumed))
