"""Methods: each holds its state (heads, momentum encoder, queue) and returns a loss, for use in any training loop."""

from imix.methods.byol import BYOL
from imix.methods.method import InBatchMethod, Method, ProjectionMethod
from imix.methods.moco import MoCo
from imix.methods.momentum import MomentumMethod
from imix.methods.npair import NPair
from imix.methods.simclr import SimCLR
from imix.methods.supclr import SupCLR
from imix.methods.supervised import Supervised
from imix.methods.supnpair import SupNPair

__all__ = [
    "BYOL",
    "InBatchMethod",
    "Method",
    "MoCo",
    "MomentumMethod",
    "NPair",
    "ProjectionMethod",
    "SimCLR",
    "SupCLR",
    "SupNPair",
    "Supervised",
]
