"""The run folder: its configuration, metrics, results, checkpoint and stored encoder."""

from imix.run.folder import Run, as_run, clear_run_folder, load_run, refuse_export

__all__ = ["Run", "as_run", "clear_run_folder", "load_run", "refuse_export"]
