"""imix: contrastive representation learning with i-Mix, for images, speech, tables and anything else.

Names are imported when they are first used, so that `import imix` and `imix --help` are quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

from imix.errors import InputError, Interrupted, StorageError, TrainingError
from imix.settings import Reading, Settings

if TYPE_CHECKING:
    from imix import augment, data, detection, distributed, encoders, evaluation, losses, methods
    from imix.encoders.stored import load_encoder
    from imix.estimator import IMixTransformer
    from imix.evaluation import embed, evaluate
    from imix.exports import export
    from imix.methods import BYOL, MoCo, NPair, SimCLR, SupCLR, Supervised, SupNPair
    from imix.mix import CutMix, InputMix, Mix, MixUp
    from imix.paper.reproduce import reproduce
    from imix.pretraining import pretrain
    from imix.reports import draw_map, report, transfer
    from imix.run import Run
    from imix.throughput import bench

__version__ = "0.1.0"

_HOME = {
    "imix.mix": ("CutMix", "InputMix", "Mix", "MixUp"),
    "imix.methods": ("BYOL", "MoCo", "NPair", "SimCLR", "SupCLR", "SupNPair", "Supervised"),
    "imix.encoders.stored": ("load_encoder",),
    "imix.run": ("Run",),
    "imix.pretraining": ("pretrain",),
    "imix.evaluation": ("embed", "evaluate"),
    "imix.estimator": ("IMixTransformer",),
    "imix.reports": ("draw_map", "report", "transfer"),
    "imix.exports": ("export",),
    "imix.paper.reproduce": ("reproduce",),
    "imix.throughput": ("bench",),
}
_MODULES = ("augment", "data", "detection", "distributed", "encoders", "evaluation", "losses", "methods")

__all__ = [
    "BYOL",
    "CutMix",
    "IMixTransformer",
    "InputError",
    "InputMix",
    "Interrupted",
    "Mix",
    "MixUp",
    "MoCo",
    "NPair",
    "Reading",
    "Run",
    "Settings",
    "SimCLR",
    "StorageError",
    "SupCLR",
    "SupNPair",
    "Supervised",
    "TrainingError",
    "augment",
    "bench",
    "data",
    "detection",
    "distributed",
    "draw_map",
    "embed",
    "encoders",
    "evaluate",
    "evaluation",
    "export",
    "load_encoder",
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
    if name in _MODULES:
        return importlib.import_module(f"imix.{name}")
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'imix' has no attribute {name!r}")
