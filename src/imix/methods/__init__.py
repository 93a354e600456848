"""Methods: each holds its state (heads, momentum encoder, queue) and returns a loss, for use in any training loop."""

from imix.methods.byol import BYOL as BYOL
from imix.methods.method import InBatchMethod as InBatchMethod
from imix.methods.method import Method as Method
from imix.methods.method import ProjectionMethod as ProjectionMethod
from imix.methods.moco import MoCo as MoCo
from imix.methods.momentum import MomentumMethod as MomentumMethod
from imix.methods.npair import NPair as NPair
from imix.methods.simclr import SimCLR as SimCLR
from imix.methods.supclr import SupCLR as SupCLR
from imix.methods.supervised import Supervised as Supervised
from imix.methods.supnpair import SupNPair as SupNPair
