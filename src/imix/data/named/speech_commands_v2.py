"""Speech Commands v0.02, with more words and speakers than the version of the paper.

84,843 training clips, 8,484 silent training clips and 11,005 test clips.
"""

from functools import partial

from imix.data.named._speech_commands import N_CLASSES, OPTIONS, TEST_LIST, load_speech_commands
from imix.data.named.record import DOWNLOADED, NamedDataset

NAME = "speech_commands_v0.02"  # also the name of the archive

DATASET = NamedDataset(
    name=NAME,
    title="Speech Commands v0.02",
    kind="audio",
    summary="105,829 clips of one second, 12 classes",
    availability=DOWNLOADED,
    options=OPTIONS,
    n_train=93_327,
    n_classes=N_CLASSES,
    marker_files=(TEST_LIST, NAME),
    load=partial(load_speech_commands, NAME, NAME),
)
