"""`imix.similar`: neighbors of rows, of files, and of other data."""

import numpy as np
import pytest

import imix
from imix import InputError
from tests.data.media.helpers import write_image
from tests.explore.helpers import customers


def test_neighbors_of_rows_are_other_samples_in_order_of_similarity(points):
    answer = imix.similar(None, points, to=[35, 2], k=3)
    assert answer.frame.columns == ["query_row", "rank", "row", "similarity"]
    assert answer.frame["query_row"].to_list() == [35] * 3 + [2] * 3
    assert answer.frame["rank"].to_list() == [1, 2, 3] * 2
    units = points / np.linalg.norm(points, axis=1, keepdims=True)
    for row in (35, 2):
        expected = [other for other in np.argsort(-(units @ units[row])) if other != row][:3]
        assert answer.frame.filter(query_row=row)["row"].to_list() == expected
    assert imix.similar(None, points, to=35, k=3).frame.equals(answer.frame[:3])


def test_by_default_every_sample_is_a_query(points):
    everything = imix.similar(None, points, k=2).frame
    assert everything["query_row"].to_list() == np.repeat(range(60), 2).tolist()
    assert (everything["query_row"] != everything["row"]).all()


def test_new_rows_find_their_kind(run, table, tmp_path, read):
    new = customers(6, seed=1).drop("churned")
    answer = imix.similar(run, table, tmp_path / "near.csv", to=new.drop("id"), k=4, keep="id")
    assert answer.frame.columns == ["query_row", "rank", "id", "row", "label", "similarity"]
    assert (answer.frame["row"] % 3 == answer.frame["query_row"] % 3).all()
    assert read(tmp_path / "near.csv")["id"].to_list() == [f"c0-{row:04}" for row in answer.frame["row"]]
    new.write_csv(tmp_path / "new.csv")
    assert imix.similar(run, table, to=str(tmp_path / "new.csv"), k=4).frame["row"].equals(answer.frame["row"])


def test_files_can_be_queries_by_name_or_as_new_files(tmp_path):
    for i in range(8):
        write_image(tmp_path / "images" / f"{i}.png", size=(16, 16))
    name = str(tmp_path / "images" / "3.png")
    known = imix.similar(None, tmp_path / "images", to=name, k=7).frame
    assert known["query_file"].to_list() == [name] * 7 and name not in known["file"].to_list()
    (tmp_path / "new.png").write_bytes((tmp_path / "images" / "3.png").read_bytes())
    new = imix.similar(None, tmp_path / "images", to=str(tmp_path / "new.png"), k=1).frame
    assert new["file"].to_list() == [name] and new["similarity"][0] == pytest.approx(1)


def test_without_a_run_new_rows_are_encoded_like_the_others():
    frame, new = customers(180).drop("id", "churned"), customers(6, seed=1).drop("id", "churned")
    answer = imix.similar(None, frame, to=new.filter(new["city"] != "Oslo"), k=4)
    assert (answer.frame["row"] % 3).to_list() == [0] * 4 + [2] * 4 + [0] * 4 + [2] * 4


def test_test_samples_are_searched_too():
    import torch

    frame = imix.similar(torch.nn.Flatten(), "digits", to=[0], k=50).frame
    assert set(frame["split"]) == {"train", "test"}
    assert frame["query_split"].unique().to_list() == ["train"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 60}, "`k` must be between 1 and 59, the number of other samples; got 60"),
        ({"k": 60, "to": 3}, "`k` must be between 1 and 59"),
        ({"to": 60}, "`to` has row 60; rows of in-memory data are numbered 0 to 59"),
        ({"to": [-1]}, "`to` has row -1"),
        ({"to": np.ones((2, 3), np.float32)}, "`to` has samples of 3 features; those of in-memory data have 4"),
        ({"to": "nothing.csv"}, "no data set or file 'nothing.csv'"),
    ],
)
def test_invalid_queries_are_one_line_errors(points, options, message):
    with pytest.raises(InputError, match=message):
        imix.similar(None, points, **options)
