import pytest
import torch
import torch.multiprocessing as mp

from tests.runtime.two_ranks import WORLD_SIZE, run_rank


@pytest.fixture(scope="session")
def ranks(tmp_path_factory) -> list[dict]:
    """The results of `run_rank` on both ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(run_rank, (str(folder),), nprocs=WORLD_SIZE)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(WORLD_SIZE)]
