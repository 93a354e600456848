"""Speech Commands v0.01, the version of the paper: 51,088 training clips, 5,108 silent ones and 6,835 test clips."""

from functools import partial

from imix.data.named._speech_commands import N_CLASSES, OPTIONS, TEST_LIST, load_speech_commands
from imix.data.named.record import DOWNLOADED, NamedDataset, PaperRecipe

ARCHIVE = "speech_commands_v0.01"

DATASET = NamedDataset(
    name="speech_commands",
    title="Speech Commands",
    kind="audio",
    summary="64,727 clips of one second (v0.01), 12 classes",
    availability=DOWNLOADED,
    options=OPTIONS,
    n_train=56_196,
    n_classes=N_CLASSES,
    marker_files=(TEST_LIST, ARCHIVE),
    load=partial(load_speech_commands, "speech_commands", ARCHIVE),
    recipe=PaperRecipe(
        settings={
            "encoder": "resnet50",
            "head": "mlpbn",
            "predictor": "mlpbn1",
            "temperature": 0.5,
            "schedule": "step",
            "milestones": (300, 400),
            "epochs": 500,
        },
        short_settings={
            "encoder": "resnet18",
            "epochs": 110,
            "weight_decay": 1e-3,
            "momentum": 0.99,
            "milestones": (),
        },
    ),
)
