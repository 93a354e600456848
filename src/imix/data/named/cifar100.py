"""CIFAR-100: 50,000 training and 10,000 test images of 32 x 32 pixels, in color, 100 classes."""

from functools import partial

from imix.data.named._cifar import RECIPE, CifarFiles, load_cifar
from imix.data.named.record import DOWNLOADED, NamedDataset

FILES = CifarFiles(
    folder="cifar-100-binary",
    python_folder="cifar-100-python",
    train=("train.bin",),
    test="test.bin",
    label_bytes=2,
)
# In the order of the labels.
CLASS_NAMES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard
    lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear
    pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark
    shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone
    television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""


DATASET = NamedDataset(
    name="cifar100",
    title="CIFAR-100",
    kind="images",
    summary="60,000 images of 32 x 32 pixels, 100 classes",
    availability=DOWNLOADED,
    options=("data_dir",),
    n_train=50_000,
    n_classes=100,
    marker_files=("cifar100.npz", FILES.test, FILES.folder, FILES.python_folder),
    load=partial(load_cifar, "cifar100", FILES, CLASS_NAMES),
    recipe=RECIPE,
)
