"""The linear protocol against plain PyTorch training, and how the learning rate is chosen."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from imix import InputError
from imix.data import TensorSource
from imix.evaluation import LinearPaper
from imix.probes.features import EncodedSource
from imix.probes.linear_paper import LinearClassifiers, linear_paper
from tests.probes.helpers import CPU, blobs, encoded


def test_training_all_lrs_together_matches_one_torch_run_per_lr():
    source = blobs(100)
    protocol = LinearPaper(lrs=(0.1, 1.0, 3.0), epochs=6, batch_size=32, milestones=(3, 5))
    classifiers = LinearClassifiers(3, protocol)
    for epoch in range(protocol.epochs):
        classifiers.train_epoch(source.inputs, source.labels, epoch)
    weight, bias = classifiers.weight, classifiers.bias
    for r, lr in enumerate(protocol.lrs):
        generator = torch.Generator().manual_seed(protocol.seed)
        classifier = nn.Linear(5, 3)
        classifier.weight.data = (0.01 * torch.randn(5, 1, 3, generator=generator))[:, 0].T.contiguous()
        classifier.bias.data.zero_()
        optimizer = torch.optim.SGD(classifier.parameters(), lr=lr, momentum=0.9)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, protocol.milestones, 0.2)
        for _ in range(protocol.epochs):
            for rows in torch.randperm(100, generator=generator).split(32):
                optimizer.zero_grad()
                F.cross_entropy(classifier(source.inputs[rows]), source.labels[rows]).backward()
                optimizer.step()
            schedule.step()
        torch.testing.assert_close(weight[:, r].T, classifier.weight.data, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(bias[r], classifier.bias.data, rtol=1e-3, atol=1e-4)


def test_the_lr_is_chosen_without_the_test_set():
    train, test = blobs(120, noise=3), blobs(60, seed=1, noise=3)
    result = linear_paper(encoded(train), encoded(test), 3, LinearPaper(epochs=5))
    shuffled = TensorSource(test.inputs, test.labels.flip(0))
    other = linear_paper(encoded(train), encoded(shuffled), 3, LinearPaper(epochs=5))
    assert result.lr == other.lr
    assert result.accuracy == result.by_lr[result.lr] <= result.paper_accuracy == max(result.by_lr.values())


def test_a_diverging_lr_counts_as_wrong_and_does_not_affect_the_others():
    train, test = blobs(90), blobs(30, seed=1)
    result = linear_paper(encoded(train), encoded(test), 3, LinearPaper(lrs=(1.0, 1e38), epochs=5))
    alone = linear_paper(encoded(train), encoded(test), 3, LinearPaper(lrs=(1.0,), epochs=5))
    assert result.lr == 1.0
    assert result.accuracy == alone.accuracy > 0.8


def test_augmentation_makes_new_views_in_every_epoch_of_training_and_none_in_testing():
    images = torch.rand(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(60) % 2
    images[labels == 1, 0] += 1
    calls = []

    def augment(x):
        calls.append(x.clone())
        return x + 0.01 * torch.randn_like(x)

    encoder = nn.Flatten()
    train = EncodedSource(encoder, TensorSource(images, labels), CPU, augment)
    result = linear_paper(train, EncodedSource(encoder, TensorSource(images, labels), CPU), 2, LinearPaper(epochs=7))
    assert result.accuracy > 0.95
    assert len(calls) == 7
    assert linear_paper(train, train.without_augment(), 2, LinearPaper(epochs=7)) == result


def test_confusion_matrix_counts_every_test_sample_and_its_diagonal_is_the_accuracy():
    torch.manual_seed(0)
    labels = torch.arange(90) % 3
    features = torch.eye(3)[labels] + 0.4 * torch.randn(90, 3)
    train, test = TensorSource(features, labels), TensorSource(features[:45], labels[:45])
    result = linear_paper(encoded(train), encoded(test), 3, LinearPaper(epochs=5))
    confusion = np.array(result.confusion)
    assert confusion.sum() == 45 and confusion.sum(1).tolist() == [15, 15, 15]
    assert np.trace(confusion) / 45 == pytest.approx(result.accuracy)
    assert 0 < result.train_accuracy <= 1


def test_there_is_no_confusion_matrix_for_more_than_100_classes():
    source = encoded(TensorSource(torch.randn(202, 4), torch.arange(202) % 101))
    assert linear_paper(source, source, 101, LinearPaper(epochs=1)).confusion == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lrs": ()}, r"lrs must be one or more numbers above 0; got \(\)"),
        ({"lrs": (1, -1)}, r"lrs must be one or more numbers above 0; got \(1, -1\)"),
        ({"epochs": 0}, "epochs must be an int above 0; got 0"),
        ({"batch_size": 0}, "batch_size must be an int above 0; got 0"),
        ({"decay": 0.0}, "decay must be above 0; got 0.0"),
        ({"momentum": 1.0}, "momentum must be at least 0 and less than 1; got 1.0"),
        ({"held_out": 0}, "held_out must be above 0 and less than 1; got 0"),
        ({"held_out": 1.0}, "held_out must be above 0 and less than 1; got 1.0"),
    ],
)
def test_invalid_hyperparameters_are_rejected_by_name(arguments, message):
    with pytest.raises(InputError, match=message):
        LinearPaper(**arguments)
