"""N-pair contrastive learning against Algorithm 1 of the paper."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from imix.mix import MixUp
from tests.methods.helpers import TAU, table_learner, views


def test_npair_matches_algorithm_1_of_the_paper():
    learner = table_learner("npair", MixUp(alpha=1.0, per_sample=False, fold=False), head="mlp").eval()
    a, b = views()
    torch.manual_seed(5)
    _, drawn = learner.mix(a)
    torch.manual_seed(5)
    loss = learner(a, b)

    def model(x: Tensor) -> Tensor:
        return learner.head(learner.encoder(x))

    x, t, lam, randidx = a, TAU, drawn.lam[0], drawn.partner
    a = lam * a + (1 - lam) * a[randidx]
    logits = torch.matmul(F.normalize(model(a)), F.normalize(model(b)).T) / t
    expected = lam * nn.CrossEntropyLoss()(logits, torch.arange(len(x))) + (1 - lam) * nn.CrossEntropyLoss()(
        logits, randidx
    )
    assert_close(loss, expected)


def test_mixup_draws_lam_and_partners_as_algorithm_1():
    """lam ~ Beta(alpha, alpha), one per batch and not folded at 1/2; randidx is a permutation."""
    alpha, x = 0.7, torch.randn(5, 2)
    torch.manual_seed(0)
    drawn = [MixUp(alpha, per_sample=False, fold=False)(x)[1] for _ in range(4000)]
    lam = torch.stack([mix.lam[0] for mix in drawn])
    beta = torch.distributions.Beta(alpha, alpha)
    assert all((mix.lam == mix.lam[0]).all() and mix.partner.sort().values.equal(torch.arange(5)) for mix in drawn)
    assert abs(lam.mean() - beta.mean) < 4 * beta.stddev / math.sqrt(len(lam))
    assert abs(lam.var() - beta.variance) < 0.005
