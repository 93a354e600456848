"""Files written by torch.save: those that are read, and those that are refused before torch reads them."""

import io
import os
import pickle
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from imix.run.torch_file import load_torch_file

WEIGHTS = {"a": torch.arange(3.0), "b": torch.zeros(2, 2, dtype=torch.int64)}
NESTED = b")" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(45))  # t = (); 45 times: t = (t, t)
LONG_LIST = b"](" + b"K\x01" * 1000 + b"eq\x00"  # 1000 items, which can be used again
LONG_DICT = b"}(" + b"".join(b"K%cK\x01" % i for i in range(200)) + b"uq\x00"


def training_checkpoint():
    """What a training script of other people saves."""
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW([{"params": [parameter]} for parameter in network.parameters()])  # share their betas
    network(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])  # has a Counter
    state = {f"module.{name}": value for name, value in network.state_dict().items()}
    return {"state_dict": state, "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(), "epoch": 3}


class Python2OrderedDict:
    """Is saved as Python 2 did it."""

    def __reduce__(self):
        return OrderedDict, ([[name, value] for name, value in WEIGHTS.items()],)


def write(path, content):
    """Write a file of torch whose pickle is replaced by these bytes."""
    saved = io.BytesIO()
    torch.save(WEIGHTS, saved)
    with zipfile.ZipFile(saved) as original, zipfile.ZipFile(path, "w") as archive:
        for info in original.infolist():
            archive.writestr(info.filename, content if info.filename.endswith("data.pkl") else original.read(info))


@pytest.mark.parametrize("use_zip", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    "content",
    [
        WEIGHTS,
        nn.Sequential(nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3)).state_dict(),
        training_checkpoint(),
        {"weight": nn.Parameter(torch.ones(2)), "none": None, "values": [True, 0.5, (1, -(2**40)), b"bytes", "é"]},
        {
            str(dtype): torch.zeros(2, dtype=dtype)
            for dtype in (torch.bool, torch.bfloat16, torch.complex64, torch.int8)
        },
    ],
    ids=["dict", "state dict", "training", "values", "dtypes"],
)
def test_files_are_read_as_torch_reads_them(tmp_path, content, use_zip):
    torch.save(content, tmp_path / "a.pt", _use_new_zipfile_serialization=use_zip)
    assert repr(load_torch_file(tmp_path / "a.pt")) == repr(content)


@pytest.mark.parametrize("use_zip", [True, False], ids=["zip", "legacy"])
def test_files_of_python_2_are_read(tmp_path, use_zip):
    torch.save(Python2OrderedDict(), tmp_path / "a.pt", _use_new_zipfile_serialization=use_zip)
    torch.testing.assert_close(load_torch_file(tmp_path / "a.pt"), OrderedDict(WEIGHTS))


def test_dtypes_without_a_storage_class_of_their_own_are_read(tmp_path):
    torch.save({"a": torch.zeros(2, dtype=torch.float8_e4m3fn), "b": torch.ones(2, dtype=torch.uint16)}, tmp_path / "a")
    loaded = load_torch_file(tmp_path / "a")
    assert loaded["a"].dtype == torch.float8_e4m3fn and loaded["b"].tolist() == [1, 1]


def test_classes_that_the_user_allows_are_read(tmp_path):
    torch.save({"_extra_state": np.arange(3)}, tmp_path / "a.pt")
    with pytest.raises(pickle.UnpicklingError, match="_reconstruct, which is not part of a tensor"):
        load_torch_file(tmp_path / "a.pt")
    allowed = [np._core.multiarray._reconstruct, np.ndarray, np.dtype, type(np.dtype("int64"))]
    with torch.serialization.safe_globals(allowed):
        assert load_torch_file(tmp_path / "a.pt")["_extra_state"].tolist() == [0, 1, 2]


REFUSED = {
    "nested tuples as a key": (b"}" + NESTED + b"K\x00s.", "a dict with a key of type tuple"),
    "several keys": (b"}(" + NESTED + b"K\x00u.", "a dict with a key of type tuple"),
    "keys of an OrderedDict": (b"ccollections\nOrderedDict\n)R" + NESTED + b"K\x00s.", "a key of type tuple"),
    "pairs of an OrderedDict": (b"ccollections\nOrderedDict\n](]" + NESTED + b"aK\x00aa\x85R.", "dict|mark|list"),
    "items of a Counter": (b"ccollections\nCounter\n]" + NESTED + b"a\x85R.", "was not written by torch"),
    "a set": (b"cbuiltins\nset\n]" + NESTED + b"a\x85R.", r"builtins\.set, which is not part of a tensor"),
    "keys of attributes": (b"ccollections\nOrderedDict\n)R](" + NESTED + b"K\x00\x86eb.", "attributes that are not"),
    "the key of a storage": (b"(K\x00K\x00" + NESTED + b"K\x00K\x00tQ.", "a storage that was not written"),
    "a storage in other letters": (b"(K\x00K\x00X\x01\x00\x00\x00aK\x00K\x00tQ.", "a storage that was not written"),
    "an unknown function": (NESTED + b")R.", "not callable"),
    "large integers as keys": (b"}\x8a\x08" + (2**61 - 1).to_bytes(8, "little") + b"K\x00s.", "a key of type int"),
    "memory": (b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.", r"builtins\.bytearray, which is not part"),
    "an encoding": (b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x04\x00\x00\x00idna\x86R.", "bytes that were not"),
    "bytes of a list": (
        b"c_codecs\nencode\n]" + NESTED + b"aX\x06\x00\x00\x00latin1\x86R.",
        "bytes that were not",
    ),
    "copies of a list": (LONG_LIST + b"ctorch._utils\n_rebuild_tensor\nh\x00\x85R0" * 100 + b".", "copied many times"),
    "copies of attributes": (
        LONG_DICT + b"ccollections\nOrderedDict\n)Rh\x00b0" * 100 + b".",
        "copied many times",
    ),
}  # fmt: skip


@pytest.mark.parametrize("trick", REFUSED)
def test_a_pickle_that_would_take_forever_or_all_memory_is_refused(tmp_path, trick):
    content, message = REFUSED[trick]
    write(tmp_path / "a.pt", b"\x80\x02" + content)
    with pytest.raises(Exception, match=message):
        load_torch_file(tmp_path / "a.pt")


def legacy(*pickles):
    return b"".join(content if isinstance(content, bytes) else pickle.dumps(content, 2) for content in pickles)


@pytest.mark.parametrize("position", range(5))
def test_every_pickle_of_a_legacy_file_is_checked(tmp_path, position):
    pickles = [torch.serialization.MAGIC_NUMBER, torch.serialization.PROTOCOL_VERSION, {}, {}, []]
    (tmp_path / "a.pt").write_bytes(legacy(*pickles))
    assert load_torch_file(tmp_path / "a.pt") == {}
    pickles[position] = b"\x80\x02}" + NESTED + b"K\x00s."
    (tmp_path / "a.pt").write_bytes(legacy(*pickles))
    with pytest.raises(pickle.UnpicklingError, match="a dict with a key of type tuple"):
        load_torch_file(tmp_path / "a.pt")


@pytest.mark.parametrize("position", [0, 1, 4])
def test_values_that_torch_would_print_or_hash_are_refused_in_a_legacy_file(tmp_path, position):
    pickles = [torch.serialization.MAGIC_NUMBER, torch.serialization.PROTOCOL_VERSION, {}, {}, []]
    pickles[position] = b"\x80\x02]" + NESTED + b"a."
    (tmp_path / "a.pt").write_bytes(legacy(*pickles))
    with pytest.raises(pickle.UnpicklingError, match="it was not written by torch"):
        load_torch_file(tmp_path / "a.pt")


def test_a_sparse_tensor_is_refused(tmp_path):
    torch.save({"a": torch.ones(2).to_sparse()}, tmp_path / "a.pt")
    with pytest.raises(pickle.UnpicklingError, match="_rebuild_sparse_tensor, which is not part of a tensor"):
        load_torch_file(tmp_path / "a.pt")


def test_messages_do_not_advise_to_load_without_weights_only(tmp_path):
    write(tmp_path / "a.pt", b"\x80\x02\x8f.")  # an empty set, which torch reads
    assert load_torch_file(tmp_path / "a.pt") == set()
    write(tmp_path / "a.pt", b"\x80\x02\x8c\x01a.")  # SHORT_BINUNICODE, which it does not
    with pytest.raises(pickle.UnpicklingError, match=r"^torch cannot read it safely$"):
        load_torch_file(tmp_path / "a.pt")
    torch.save(WEIGHTS, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt", "a") as archive:  # makes it a TorchScript archive
        archive.writestr("a/constants.pkl", b"\x80\x02).")
    with (
        pytest.warns(UserWarning, match="TorchScript archive"),
        pytest.raises(pickle.UnpicklingError, match=r"^torch cannot read it safely$"),
    ):
        load_torch_file(tmp_path / "a.pt")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_not_a_regular_file_is_refused(tmp_path, kind):
    if kind == "pipe":
        os.mkfifo(tmp_path / "a.pt")
    elif kind == "folder":
        (tmp_path / "a.pt").mkdir()
    else:
        (tmp_path / "a.pt").symlink_to("/dev/zero")
    with pytest.raises(pickle.UnpicklingError, match="it is not a regular file"):
        load_torch_file(tmp_path / "a.pt")
