"""Methods: state (heads, momentum encoder, queue) and one forward each; use them in any training loop."""

from imix.methods.byol import BYOL
from imix.methods.method import InBatch, Method, Projected
from imix.methods.moco import MoCo
from imix.methods.npair import NPair
from imix.methods.simclr import SimCLR
from imix.methods.supclr import SupCLR
from imix.methods.supervised import Supervised
from imix.methods.supnpair import SupNPair

__all__ = [
    "BYOL",
    "InBatch",
    "Method",
    "MoCo",
    "NPair",
    "Projected",
    "SimCLR",
    "SupCLR",
    "SupNPair",
    "Supervised",
]
