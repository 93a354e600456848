"""The order of samples that are stored in blocks, and the cache of blocks."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from imix.data.blocks import BlockCache, block_order
from imix.runtime.rng import epoch_order

BLOCKS = torch.arange(6000) // 100  # 60 blocks of 100 rows


def test_an_epoch_visits_every_row_once():
    assert block_order(BLOCKS, 8, seed=0, epoch=0).sort().values.equal(torch.arange(6000))


def test_the_order_follows_from_seed_and_epoch():
    first, again, other_epoch, other_seed = (block_order(BLOCKS, 8, *key) for key in ((0, 0), (0, 0), (0, 1), (1, 0)))
    assert first.equal(again)
    assert not first.equal(other_epoch) and not first.equal(other_seed)


def test_about_a_window_of_blocks_is_in_use_at_a_time():
    visited = BLOCKS[block_order(BLOCKS, 8, seed=0, epoch=0)]
    n_blocks = [len(rows.unique()) for rows in visited.split(50)]
    assert max(n_blocks) <= 10
    assert min(n_blocks) >= 4, "rows of several blocks are mixed, also at the start and at the end"


def test_no_block_is_visited_again_after_a_window():
    visited = BLOCKS[block_order(BLOCKS, 8, seed=0, epoch=0)]
    spans = [(where := (visited == block).nonzero())[-1] - where[0] for block in range(60)]
    assert max(spans) < 10 * 100


def test_all_rows_are_shuffled_if_they_fit_a_window():
    assert block_order(BLOCKS, 60, seed=3, epoch=2).equal(epoch_order(3, 2, 6000))


def test_a_part_of_the_rows_is_visited_in_the_same_way():
    rows = torch.arange(0, 6000, 7)
    order = block_order(BLOCKS, 8, 0, 0, rows)
    assert order.sort().values.equal(rows)
    assert max(len(part.unique()) for part in BLOCKS[order].split(10)) <= 10


def test_the_cache_keeps_the_most_recently_used_blocks_and_loads_each_once():
    loaded = []
    cache = BlockCache(lambda number: loaded.append(number) or number * 10, capacity=2)
    with ThreadPoolExecutor(1) as pool:
        requested = cache.request([3, 4], pool)
        assert {number: future.result() for number, future in requested.items()} == {3: 30, 4: 40}
        cache.request([3], pool)
        cache.request([5], pool)  # replaces 4
        assert cache.request([3, 5], pool)[3].result() == 30
    assert loaded == [3, 4, 5]
    assert list(cache.blocks) == [3, 5]


def test_an_error_while_loading_a_block_reaches_the_caller():
    cache = BlockCache(lambda number: 1 // 0, capacity=1)
    with ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError):
        cache.request([0], pool)[0].result()


def test_a_block_that_could_not_be_loaded_is_loaded_again():
    results = iter([OSError("disk error"), 7])

    def load(number):
        if isinstance(result := next(results), Exception):
            raise result
        return result

    cache = BlockCache(load, capacity=1)
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(OSError, match="disk error"):
            cache.request([0], pool)[0].result()
        assert cache.request([0], pool)[0].result() == 7
