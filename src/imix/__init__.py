"""imix: contrastive representation learning with i-Mix, for images, audio, tables and any other tensors.

Names are imported on first use, so `import imix` and `imix --help` do not load torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from imix._version import __version__
from imix.errors import InputError, Interrupted, StorageError, TrainingError
from imix.settings import DataSettings, Settings

if TYPE_CHECKING:
    from imix import augment, data, detection, encoders, evaluation, losses, methods, reproduce
    from imix.evaluation import evaluate
    from imix.evaluation.transfer import transfer
    from imix.methods import BYOL, MoCo, NPair, SimCLR, SupCLR, Supervised, SupNPair
    from imix.mix import CutMix, InputMix, Mix, MixUp
    from imix.probes.embed import embed
    from imix.reports import draw_map, report
    from imix.run import Run, load_run
    from imix.run.export import export
    from imix.run.stored_encoder import load_encoder
    from imix.sklearn import IMixTransformer
    from imix.train.bench import bench
    from imix.train.pretrain import pretrain

_MODULE_OF = {
    "BYOL": "imix.methods",
    "CutMix": "imix.mix",
    "IMixTransformer": "imix.sklearn",
    "InputMix": "imix.mix",
    "Mix": "imix.mix",
    "MixUp": "imix.mix",
    "MoCo": "imix.methods",
    "NPair": "imix.methods",
    "Run": "imix.run",
    "SimCLR": "imix.methods",
    "SupCLR": "imix.methods",
    "SupNPair": "imix.methods",
    "Supervised": "imix.methods",
    "bench": "imix.train.bench",
    "draw_map": "imix.reports",
    "embed": "imix.probes.embed",
    "evaluate": "imix.evaluation",
    "export": "imix.run.export",
    "load_encoder": "imix.run.stored_encoder",
    "load_run": "imix.run",
    "pretrain": "imix.train.pretrain",
    "report": "imix.reports",
    "transfer": "imix.evaluation.transfer",
}
_SUBPACKAGES = ("augment", "data", "detection", "encoders", "evaluation", "losses", "methods", "reproduce")

__all__ = [
    "BYOL",
    "CutMix",
    "DataSettings",
    "IMixTransformer",
    "InputError",
    "InputMix",
    "Interrupted",
    "Mix",
    "MixUp",
    "MoCo",
    "NPair",
    "Run",
    "Settings",
    "SimCLR",
    "StorageError",
    "SupCLR",
    "SupNPair",
    "Supervised",
    "TrainingError",
    "__version__",
    "augment",
    "bench",
    "data",
    "detection",
    "draw_map",
    "embed",
    "encoders",
    "evaluate",
    "evaluation",
    "export",
    "load_encoder",
    "load_run",
    "losses",
    "methods",
    "pretrain",
    "report",
    "reproduce",
    "transfer",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"imix.{name}")
    if name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'imix' has no attribute {name!r}")
