import pytest

from tests.detection.helpers import draw_shapes, write_image, write_splits


@pytest.fixture(scope="session")
def shapes(tmp_path_factory):
    """A folder with twelve images, which are both the training and the test split."""
    folder = tmp_path_factory.mktemp("shapes")
    names = [f"{seed:06}" for seed in range(12)]
    for seed, name in enumerate(names):
        write_image(folder, name, *draw_shapes(seed))
    write_splits(folder, trainval=names, test=names)
    return folder
