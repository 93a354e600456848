"""Callbacks: log a run's metrics to MLflow while it is training, and its encoder at every checkpoint.

    pip install mlflow
    python examples/log_to_mlflow.py

The callbacks get a small read-only state: epoch, step, learning rate, loss and the latest metrics. Other trackers work
in the same way. Tracking server and run folder are temporary here; use your own tracking URI and `out`. Prints the loss
of the first and last epoch as MLflow stored it.
"""

import tempfile
from pathlib import Path

import mlflow

import imix


def log_metrics(state: imix.TrainingState) -> None:
    """Log the metrics of an epoch."""
    mlflow.log_metrics(dict(state.metrics), step=state.step)


def log_encoder(state: imix.TrainingState) -> None:
    """Upload the encoder, which is written with every checkpoint."""
    assert state.path is not None
    mlflow.log_artifact(str(state.path / "encoder.safetensors"))


def main() -> None:
    """Train on digits and read the logged metrics back."""
    with tempfile.TemporaryDirectory() as folder:
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        experiment = mlflow.create_experiment("digits", artifact_location=Path(folder, "artifacts").as_uri())
        settings = imix.Settings(epochs=5, device="cpu")
        with mlflow.start_run(experiment_id=experiment) as mlflow_run:
            mlflow.log_params(vars(settings))
            out = Path(folder, "run")
            imix.pretrain("digits", settings, out=out, on_epoch=log_metrics, on_checkpoint=log_encoder, progress=False)
        losses = mlflow.MlflowClient().get_metric_history(mlflow_run.info.run_id, "loss")
        print(f"loss of the first epoch: {losses[0].value:.2f}")
        print(f"loss of the last epoch: {losses[-1].value:.2f}")


if __name__ == "__main__":
    main()
