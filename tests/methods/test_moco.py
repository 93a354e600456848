"""MoCo's queue and its number of keys."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import imix
from imix import InputError
from imix.methods import MoCo
from imix.mix import MixUp
from tests.methods.helpers import TAU, K, N, build, table_learner, views


class Stamp(nn.Module):
    """An encoder whose output identifies the sample: a unit vector rotated by the sample's number."""

    width = 2

    def __init__(self) -> None:
        super().__init__()
        self.angle = nn.Parameter(torch.tensor(1e-3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([(x * self.angle).cos(), (x * self.angle).sin()], 1)


class NumberedMoCo:
    """A MoCo whose queue can be read as sample numbers."""

    def __init__(self, size: int) -> None:
        torch.manual_seed(0)
        self.learner = MoCo(Stamp(), queue=size, dim=2, head="linear")
        for head in (self.learner.head, self.learner.key_head):
            nn.init.eye_(head[0].weight)
            nn.init.zeros_(head[0].bias)
        self.next = 1

    def step(self, n: int, update: bool = True) -> None:
        x = torch.arange(self.next, self.next + n).float()[:, None]
        self.next += n
        self.learner(x, x)
        if update:
            self.learner.update()

    def numbers(self) -> list[int]:
        """The sample numbers in the queue, oldest first."""
        ordered = self.learner.queue.roll(-int(self.learner.cursor), 0)
        return [round(float(torch.atan2(y, x)) * 1000) for x, y in ordered]


def test_queue_starts_as_normalized_noise():
    torch.manual_seed(0)
    queue = MoCo(nn.Linear(3, 4), queue=500, dim=16).queue
    assert queue.shape == (500, 16)
    assert_close(queue.norm(dim=1), torch.ones(500))
    assert queue.mean(0).abs().max() < 0.05
    assert not queue.requires_grad


@pytest.mark.parametrize("sizes", [(4, 4, 4), (3, 3, 3, 3, 3, 3), (5, 1, 7, 2), (7, 7, 7), (8, 9), (10, 3, 23, 1)])
def test_queue_is_first_in_first_out_for_any_batch_size(sizes):
    size, queue, total = 7, NumberedMoCo(7), 0
    expected = queue.numbers()
    for n in sizes:
        queue.step(n)
        expected = (expected + list(range(total + 1, total + n + 1)))[-size:]
        total += n
        assert queue.numbers() == expected
        assert queue.learner.cursor == total % size


def test_keys_enter_the_queue_once_at_update():
    queue = NumberedMoCo(5)
    before = queue.learner.queue.clone()
    queue.step(3, update=False)
    assert queue.learner.queue.equal(before)
    assert queue.learner.cursor == 0
    queue.learner.update()
    assert queue.numbers()[-3:] == [1, 2, 3]
    queue.learner.update()
    assert queue.numbers()[-3:] == [1, 2, 3]
    assert queue.learner.cursor == 3


def test_keys_of_accumulated_batches_all_enter_the_queue():
    queue = NumberedMoCo(5)
    queue.step(2, update=False)
    queue.step(2, update=False)
    queue.learner.update()
    assert queue.numbers()[-4:] == [1, 2, 3, 4]


def test_keys_enter_the_queue_in_training_mode_only():
    queue = NumberedMoCo(5)
    before = queue.learner.queue.clone()
    queue.learner.eval()
    queue.step(3)
    assert queue.learner.queue.equal(before)
    assert queue.learner.cursor == 0


def test_queue_holds_normalized_keys_of_the_key_network():
    learner = table_learner("moco", MixUp())
    view_1, view_2 = views()
    keys = copy.deepcopy(learner).keys(view_2)[0]
    learner(view_1, view_2)
    learner.update()
    assert_close(learner.queue[:N], F.normalize(keys))
    assert_close(learner.queue.norm(dim=1), torch.ones(K))


def test_queue_is_restored_from_a_checkpoint(tmp_path):
    queue = NumberedMoCo(7)
    queue.step(5)
    torch.save(queue.learner.state_dict(), tmp_path / "checkpoint.pt")
    resumed = NumberedMoCo(7)
    resumed.learner.queue.zero_()
    resumed.learner.load_state_dict(torch.load(tmp_path / "checkpoint.pt", weights_only=True))
    resumed.next = queue.next
    assert resumed.learner.queue.equal(queue.learner.queue)
    assert resumed.learner.cursor == 5
    for both in (queue, resumed):
        both.step(4)
    assert resumed.learner.queue.equal(queue.learner.queue)
    assert resumed.numbers() == [3, 4, 5, 6, 7, 8, 9]


def test_moco_without_mix_is_k_plus_1_way():
    """Samples are independent: the loss of a batch is the mean of the losses of its samples."""
    torch.manual_seed(0)
    learner = build("moco", nn.Linear(20, 12), head="linear").eval()
    view_1, view_2 = views()
    alone = torch.stack([learner(view_1[i : i + 1], view_2[i : i + 1]) for i in range(N)])
    assert_close(learner(view_1, view_2), alone.mean())


def test_moco_with_mix_is_n_plus_k_way():
    torch.manual_seed(0)
    learner = build("moco", nn.Linear(20, 12), MixUp(), head="linear").eval()
    view_1, view_2 = views()
    torch.manual_seed(1)
    mixed, (partner, lam) = learner.mix(view_1)
    torch.manual_seed(1)
    loss = learner(view_1, view_2)
    q, k = F.normalize(learner.head(learner.encoder(mixed))), F.normalize(learner.keys(view_2)[0])
    logits = q @ torch.cat([k, learner.queue]).T / TAU
    assert logits.shape == (N, N + K)
    anchor_loss, partner_loss = (F.cross_entropy(logits, key, reduction="none") for key in (torch.arange(N), partner))
    assert_close(loss, (lam * anchor_loss + (1 - lam) * partner_loss).mean())


def test_symmetric_queue_gets_the_keys_of_both_views():
    torch.manual_seed(0)
    learner = build("moco", nn.Linear(20, 12), head="linear", symmetric=True)
    view_1, view_2 = views()
    keys = [F.normalize(learner.keys(view)[0]) for view in (view_2, view_1)]
    learner(view_1, view_2)
    learner.update()
    rows = torch.arange(2 * N) % K
    assert_close(learner.queue[rows[2 * N - K :]], torch.cat(keys)[2 * N - K :])
    assert learner.cursor == 2 * N % K


def test_an_empty_queue_is_rejected():
    with pytest.raises(InputError, match="queue must be at least 1; got 0"):
        imix.MoCo(nn.Linear(5, 4), queue=0)
