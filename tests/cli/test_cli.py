"""The `imix` command: output, one-line errors, exit codes, and imports."""

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import imix
from imix.cli import COMMANDS, main
from imix.files import locked
from tests.data.media.helpers import write_image

QUICK = ["--epochs", "2", "--encoder", "mlp:16-32", "--device", "cpu"]


def test_pretrain_evaluate_and_embed_an_npz_file(run_cli, tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(120, 6)) + 4 * y[:, None], y=y)
    code, out, _ = run_cli("pretrain", tmp_path / "data.npz", "--out", tmp_path / "run", *QUICK, "--method", "moco")
    assert (code, "encoder.safetensors" in out) == (0, True)
    code, out, _ = run_cli("evaluate", tmp_path / "run", "--protocol", "knn")
    assert code == 0
    assert out.startswith("knn on ")
    assert float(out.split(": ")[1].split("%")[0]) > 90
    code, out, _ = run_cli("embed", tmp_path / "run", tmp_path / "data.npz", "--out", tmp_path / "z.parquet")
    assert (code, out) == (0, f"120 vectors of 8 features written to {tmp_path / 'z.parquet'}\n")


def test_pretrain_prints_commands_that_work_next(run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, data = "my runs/$HOME's", "my data.csv"
    rows = "".join(f"{i % 7},{(i * 3) % 11}\n" for i in range(60))
    Path(data).write_text(f"a,b\n{rows}")
    code, out, _ = run_cli("pretrain", data, "--out", folder, *QUICK)
    written, title, *commands = out.splitlines()
    assert (code, written, title) == (0, f"encoder written to {folder}/encoder.safetensors", "next:")
    words = [shlex.split(command) for command in commands]
    assert [line[:2] for line in words] == [["imix", name] for name in ("evaluate", "embed", "report")]
    for line in words:
        code, _, err = run_cli(*line[1:])
        assert code == 0, err
    assert Path(folder, "features.parquet").exists() and Path(folder, "report.html").exists()


def test_commands_take_globs_and_columns_of_paths(run_cli, tmp_path):
    paths = [write_image(tmp_path / "im" / "ab"[i % 2] / f"{i}.png", size=(8, 8)) for i in range(12)]
    rows = "".join(f"{path.relative_to(tmp_path)},{path.parent.name}\n" for path in paths)
    (tmp_path / "t.csv").write_text(f"file,kind\n{rows}")
    flags = ("--epochs", 1, "--batch-size", 4, "--device", "cpu", "--out")
    columns = ("--path-column", "file", "--label", "kind")
    assert run_cli("pretrain", tmp_path / "im" / "*" / "*.png", "--channels", 1, *flags, tmp_path / "run")[0] == 0
    code, out, _ = run_cli("evaluate", tmp_path / "run", "--data", tmp_path / "t.csv", *columns, "--protocol", "knn")
    assert code == 0 and out.startswith(f"knn on {tmp_path / 't.csv'}: ")
    code, _, err = run_cli("pretrain", tmp_path / "t.csv", *flags, tmp_path / "new")
    assert code == 2 and "pass --path-column file to train on the files, or --columns file drop" in err
    assert not (tmp_path / "new").exists()


def test_a_misspelled_command_gets_a_suggestion(run_cli):
    code, _, err = run_cli("pretrian", "digits")
    assert code == 2
    assert err.startswith("imix: unknown command 'pretrian' (did you mean 'pretrain'?); choose from demo, ")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--compile"], True),
        (["--compile=True"], True),
        (["--no-compile"], False),
        (["--compile=None"], None),
        (["--cuda-graph", "--compile"], True),
        ([], None),
    ],
)
def test_tristate_flags_need_no_value(run_cli, monkeypatch, flags, expected):
    values = []

    def fake_pretrain(data, settings, *args, **options):
        values.append(settings.compile)
        raise imix.InputError("not run")

    monkeypatch.setattr("imix.train.pretrain.pretrain", fake_pretrain)
    for words in (["digits", *flags, "--out", "x"], ["--out", "x", *flags, "digits"]):
        code, _, _ = run_cli("pretrain", *words)
        assert (code, values.pop()) == (2, expected)


def test_without_arguments_the_help_is_printed(run_cli):
    code, out, err = run_cli()
    assert (code, err) == (0, "")
    assert run_cli("--help") == (0, out, "")
    assert all(word in out for word in (*COMMANDS, "--version"))


@pytest.mark.slow
def test_a_csv_file_with_strings_and_missing_values(run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kinds = ["cat", "dog", "fox"]
    rows = [f"{i * 7 % 90 / 2 + 40 * (i % 3)},{kinds[i % 3] if i % 5 else ''},{kinds[i % 3]}" for i in range(90)]
    with open("pets.csv", "w") as file:
        file.write("\n".join(["weight;kg,says,animal", *rows]))
    with open("new.csv", "w") as file:
        file.write("says,weight;kg\ncow,1\n,\n")
    with open("wrong.csv", "w") as file:
        file.write("says,weight\ncow,1\n")
    flags = ["--label", "animal", "--masking", "0.1", "--resampling", "0.1", "--augment-columns", "numeric", "says"]
    code, _, err = run_cli("pretrain", "pets.csv", "--out", "run", *QUICK, *flags, "--columns", "says", "categorical")
    assert (code, "1 numeric ('weight;kg'), 1 categorical ('says')" in err) == (0, True)
    monkeypatch.chdir("/")
    code, out, _ = run_cli("evaluate", tmp_path / "run", "--protocol", "knn")
    assert code == 0 and "train 72, test 18 held out with seed 0" in out
    code, out, _ = run_cli("evaluate", tmp_path / "run", "--data", tmp_path / "pets.csv", "--label", "animal")
    assert code == 0 and "features, linear" in out and "balanced accuracy" in out
    assert run_cli("embed", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "z.csv")[0] == 0
    assert len((tmp_path / "z.csv").read_text().splitlines()) == 3
    code, _, err = run_cli("embed", tmp_path / "run", tmp_path / "wrong.csv", "--out", tmp_path / "z.csv")
    assert (code, err.count("\n")) == (2, 1)
    assert "missing: 'weight;kg'; not seen in training: 'weight'" in err


def test_finetune_and_predict_a_csv_file(run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{i},{i * 7 % 90 / 2 + 40 * (i % 3)},{'abc'[i % 3]}" for i in range(90)]
    with open("train.csv", "w") as file:
        file.write("\n".join(["id,weight,kind", *rows]))
    with open("new.csv", "w") as file:
        file.write("\n".join(["id,weight", *(row.rsplit(",", 1)[0] for row in rows)]))
    assert (
        run_cli("pretrain", "train.csv", "--out", "run", *QUICK, "--label", "kind", "--columns", "id", "drop")[0] == 0
    )
    code, out, _ = run_cli("finetune", "run", "--out", "tuned", "--epochs", "5", "--device", "cpu")
    assert (code, out) == (0, "classifier for 3 classes written to tuned; next: imix predict tuned DATA --out FILE\n")
    code, out, _ = run_cli("predict", "tuned", "new.csv", "--out", "p.csv", "--keep", "id")
    assert (code, out) == (0, "90 predictions written to p.csv\n")
    assert (tmp_path / "p.csv").read_text().splitlines()[0] == '"id","prediction","p_a","p_b","p_c"'
    code, _, err = run_cli("finetune", "run", "--out", "tuned")
    assert code == 2 and "'tuned' has a run; pass --overwrite to replace it, or change --out" in err
    code, _, err = run_cli("predict", "run", "new.csv", "--out", "p.csv")
    assert code == 2 and "was not fine-tuned" in err


def test_the_summary_can_include_the_fine_tuned_encoder(run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", x=np.random.default_rng(0).normal(size=(60, 4)), y=np.arange(60) % 2)
    assert run_cli("pretrain", "data.npz", "--out", "run", *QUICK)[0] == 0
    code, out, _ = run_cli("evaluate", "run", "--finetune", "--labels-per-class", "5", "--draws", "2")
    assert code == 0 and out.count("fine-tuned encoder") == 2
    code, out, err = run_cli("evaluate", "run", "--finetune", "--protocol", "knn")
    message = "imix: --finetune adds a row to the summary, so it cannot be used with --protocol knn\n"
    assert (code, out, err) == (2, "", message)


@pytest.mark.slow
def test_every_command_that_reads_a_table_can_drop_columns(run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{i * 7 % 90 / 2 + 40 * (i % 3)},{i * 5 % 7 / 2},{'abc'[i % 3]}" for i in range(60)]
    with open("train.csv", "w") as file:
        file.write("\n".join(["weight,size,kind", *rows]))
    with open("new.csv", "w") as file:
        file.write("\n".join(["weight,size,kind,wings", *(f"{row},{i % 2}" for i, row in enumerate(rows))]))
    assert run_cli("pretrain", "train.csv", "--out", "run", *QUICK, "--label", "kind")[0] == 0
    for words in (
        ["evaluate", "run", "--data", "new.csv", "--protocol", "knn"],
        ["embed", "run", "new.csv", "--out", "z.npy"],
        ["transfer", "run", "--data", "new.csv", "train.csv", "--protocol", "knn"],
        ["map", "run", "--data", "new.csv", "--out", "map.svg", "--samples", "20"],
    ):
        code, _, err = run_cli(*words)
        assert code == 2 and "not seen in training: 'wings' (exclude with --columns NAME drop)" in err
        assert run_cli(*words, "--columns", "wings", "drop")[0] == 0


@pytest.mark.parametrize(("rank", "output"), [("0", "result\n"), ("1", "")])
def test_only_rank_0_prints_the_result_of_an_evaluation(run_cli, monkeypatch, rank, output):
    monkeypatch.setattr("imix.evaluation.evaluate", lambda *args, **options: "result")
    monkeypatch.setenv("RANK", rank)
    assert run_cli("evaluate", "run") == (0, output, "")


@pytest.mark.parametrize(("rank", "output"), [("0", "8 vectors of 3 features written to z.npy\n"), ("1", "")])
def test_only_rank_0_prints_what_embed_has_written(run_cli, monkeypatch, rank, output):
    monkeypatch.setattr("imix.probes.embed.embed", lambda *args, **options: np.empty((8, 3)))
    monkeypatch.setenv("RANK", rank)
    assert run_cli("embed", "run", "x.npy", "--out", "z.npy") == (0, output, "")


def test_a_run_starts_from_another_run(run_cli, tmp_path):
    assert run_cli("pretrain", "digits", *QUICK, "--out", tmp_path / "first")[0] == 0
    flags = ["--init", tmp_path / "first", "--epochs", "1", "--device", "cpu"]
    assert run_cli("pretrain", "digits", *flags, "--out", tmp_path / "second")[0] == 0
    settings = imix.load_run(tmp_path / "second").settings
    assert (settings.encoder, settings.init) == ("mlp:16-32", str(tmp_path / "first"))


def test_flags_become_settings(run_cli, tmp_path):
    flags = ["--method", "byol", "--mix", "cutmix", "--alpha", "2", "--no-fold", "--lr", "0.05", "--seed", "3"]
    assert run_cli("pretrain", "digits", "--out", tmp_path / "run", *QUICK, *flags, "--milestones", "3", "4")[0] == 0
    settings = imix.load_run(tmp_path / "run").settings
    expected = {"method": "byol", "mix": "cutmix", "alpha": 2.0, "fold": False, "lr": 0.05, "seed": 3, "epochs": 2}
    assert {name: getattr(settings, name) for name in expected} == expected
    assert settings.milestones == (3, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pretrain", "nowhere.npy", "--out", "run"], "no data set or file 'nowhere.npy'"),
        (["pretrain", "digits", "--epoch", "5", "--out", "run"], r"unknown option: --epoch\. Did you mean --epochs\?"),
        (["pretrain", "digits", "--epochs", "2.5", "--out", "run"], '--epochs: unable to convert "2.5" into int'),
        (["pretrain", "digits", "--milestones", "1", "2.5", "--out", "run"], '--milestones: .*"2.5"'),
        (["pretrain", "digits", "--lr", "fast", "--out", "run"], '--lr: unable to convert "fast" into float'),
        (["pretrain", "digits", "--compile", "True", "--out", "run"], "unexpected argument 'True'"),
        (["pretrain", "digits", "--out", "run", "--out", "run"], "--out specified multiple times"),
        (["pretrain", "--out", "run"], "DATA is required"),
        (["pretrain", "digits", "--out"], "--out requires an argument"),
        (["--verison"], r"unknown command '--verison' \(did you mean '--version'\?\)"),
        (["pretrain", "digits", "--method", "dino", "--out", "run"], '"dino".*npair.*supervised'),
        (["pretrain", "digits", "--temperature", "-1", "--out", "run"], "--temperature must be above 0; got -1"),
        (["pretrain", "digits", "--encoder", "vit", "--out", "run"], "unknown encoder 'vit'; choose from small"),
        (["pretrain", "digits", "--init", "nosuch", "--out", "run"], "--init nosuch must be a run folder, a file"),
        (["pretrain", "digits", "--batch-size", "1", "--out", "run"], "at least 2"),
        (["pretrain", "digits", "--device", "cuda:7", "--out", "run"], "cuda:7|GPU"),
        (["pretrain", "table.npy", "--mix", "cutmix", "--out", "run"], r"\(N, F\) use MixUp"),
        (["pretrain", "table.npy", "--method", "supclr", "--out", "run"], "needs labels"),
        (["pretrain", "inf.npy", "--out", "run"], r"inf\.npy has 1 values that are NaN.* at index \[0, 1\]"),
        (["pretrain", "short.npz", "--out", "run"], r"labels .*short\.npz must have shape \(4,\); got \(3,\)"),
        (
            ["pretrain", "digits", "--out", "table.npy"],
            "cannot create the run folder 'table.npy': 'table.npy' is a file",
        ),
        (["pretrain", "digits", "--out", "table.npy/run"], "cannot create the run folder .*'table.npy' is a file"),
        (["pretrain", "digits", "--device", "mps", "--out", "run"], "unknown device 'mps'"),
        (
            ["pretrain", "pets.csv", "--label", "breed", "--out", "run"],
            "no column 'breed'; its columns are 'legs', 'name'",
        ),
        (
            ["pretrain", "pets.csv", "--columns", "legs", "number", "--out", "run"],
            "unknown kind 'number' for column 'legs'",
        ),
        (["pretrain", "pets.csv", "--columns", "legs", "--out", "run"], "expected pairs: .*'legs' has no kind"),
        (["pretrain", "pets.csv", "--columns", "wings", "numeric", "--out", "run"], "no column 'wings'"),
        (["pretrain", "pets.csv", "--test", "nowhere.csv", "--out", "run"], "no data set or file .*nowhere.csv"),
        (["pretrain", "covtype", "--data-dir", ".", "--out", "run"], "none of covtype.data.gz"),
        (["demo", "--seeds", "0"], "--seeds must be at least 1; got 0"),
        (["demo", "--out", "table.npy"], "--out must be a folder; 'table.npy' is a file"),
        (["pretrain", "digits"], "--out is required"),
        (["pretrain", "digits", "--out", "run", "--frobnicate"], "--frobnicate"),
        (["evaluate", "."], "not a run folder"),
        (["evaluate", "nowhere"], "no run folder 'nowhere'"),
        (["embed", "nowhere", "digits", "--out", "z.npy"], "no run folder 'nowhere'"),
        (["embed", "nowhere", "digits", "--out", "z.xls"], "z.xls"),
        (["conquer"], "conquer.*pretrain|conquer"),
    ],
)
def test_invalid_input_prints_one_line_and_exits_with_code_2(run_cli, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    np.save("table.npy", np.ones((8, 3)))
    np.save("inf.npy", np.array([[0.0, np.inf], [1.0, 2.0]]))
    np.savez("short.npz", x=np.ones((4, 2)), y=np.ones(3))
    (tmp_path / "pets.csv").write_text("legs,name\n4,Rex\n2,Polly\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    code, out, err = run_cli(*arguments)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert "cyclopts" not in err
    assert re.search(message, err), err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_run_is_only_overwritten_with_the_flag(run_cli, tmp_path):
    assert run_cli("pretrain", "digits", "--out", tmp_path / "run", *QUICK)[0] == 0
    before = (tmp_path / "run" / "encoder.safetensors").read_bytes()
    code, _, err = run_cli("pretrain", "digits", "--out", tmp_path / "run", *QUICK, "--seed", "1")
    assert code == 2
    assert "--resume" in err and "--overwrite" in err
    assert (tmp_path / "run" / "encoder.safetensors").read_bytes() == before
    assert run_cli("pretrain", "digits", "--out", tmp_path / "run", *QUICK, "--seed", "1", "--overwrite")[0] == 0
    assert (tmp_path / "run" / "encoder.safetensors").read_bytes() != before


def test_a_run_folder_in_use_is_a_reason_to_try_again(run_cli, tmp_path):
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"):
        code, _, err = run_cli("pretrain", "digits", "--out", tmp_path / "run", *QUICK)
    assert (code, err.splitlines()[-1]) == (
        75,
        f"imix: another command is training in '{tmp_path / 'run'}'; wait, or change --out",
    )


def test_sigterm_before_the_training_starts_exits_with_code_75(run_cli, monkeypatch):
    monkeypatch.setattr("imix.train.pretrain.pretrain", lambda *args, **options: signal.raise_signal(signal.SIGTERM))
    previous = signal.getsignal(signal.SIGTERM)
    try:
        code, _, err = run_cli("pretrain", "digits", "--out", "run")
    finally:
        signal.signal(signal.SIGTERM, previous)
    message = "imix: stopped before training started; to continue, run the same command with --resume\n"
    assert (code, err) == (75, message)


def test_version_is_printed(run_cli):
    assert run_cli("--version") == (0, f"imix {imix.__version__}\n", "")


def test_a_run_can_be_evaluated_from_another_working_directory(run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    y = np.array(["no", "yes"] * 20)
    np.savez("data.npz", x=np.random.default_rng(0).normal(size=(40, 3)), y=y)
    assert run_cli("pretrain", "data.npz", "--out", "run", *QUICK)[0] == 0
    monkeypatch.chdir("/")
    assert run_cli("evaluate", tmp_path / "run", "--protocol", "knn")[0] == 0
    assert run_cli("embed", tmp_path / "run", tmp_path / "data.npz", "--out", tmp_path / "z.csv")[0] == 0
    labels = [line.split(",")[-1].strip('"') for line in (tmp_path / "z.csv").read_text().splitlines()[1:]]
    assert labels == y.tolist()


@pytest.mark.parametrize("arguments", [["--help"], ["pretrain", "--help"]])
def test_help_does_not_import_torch(arguments):
    code = f"import sys; sys.argv = {['imix', *arguments]}\nfrom imix.cli import main\nmain()\n"
    code += "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_core_needs_only_torch_torchvision_and_numpy():
    code = """
import sys
blocked = "sklearn scipy rich cyclopts plotly pyarrow pandas polars safetensors tensorboard"
for name in blocked.split():
    sys.modules[name] = None
import torch, imix
from imix.data import TensorSource
x = torch.randn(40, 5); source = TensorSource(x, torch.arange(40) % 2)
for method in ("supclr", "supnpair", "supervised", "simclr", "moco", "byol", "npair"):
    run = imix.pretrain(source, imix.Settings(method=method, epochs=2, batch_size=20, encoder="mlp:8-8"))
for protocol in ("linear", "knn", "pinv"):
    imix.evaluate(run, source, protocol)
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_every_public_name_can_be_imported():
    for name in imix.__all__:
        assert getattr(imix, name) is not None
    with pytest.raises(AttributeError, match="No imix attribute nothing"):
        _ = imix.nothing


def test_data_list_and_fetch(capsys, monkeypatch):
    from imix.data.named import DATASETS

    monkeypatch.setattr(sys, "argv", ["imix", "data", "list"])
    main()
    output = capsys.readouterr().out
    assert all(name in output for name in DATASETS)
    monkeypatch.setattr(sys, "argv", ["imix", "data", "fetch", "digits"])
    main()
    assert "digits: 1,297 training and 500 test samples of shape (1, 8, 8), 10 classes" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["imix", "data", "fetch", "mnist"])
    with pytest.raises(SystemExit):
        main()
    assert "unknown data set 'mnist'; choose from cifar10, cifar100, " in capsys.readouterr().err


def test_out_of_memory_is_a_one_line_error(capsys, monkeypatch):
    import torch

    import imix.data.named

    monkeypatch.setattr(sys, "argv", ["imix", "data", "list"])
    for error, message in (
        (MemoryError(), "not enough memory\n"),
        (torch.OutOfMemoryError("CUDA\nmore"), "memory: CUDA\n"),
    ):

        def fail(error=error):
            raise error

        monkeypatch.setattr(imix.data.named, "list_datasets", fail)
        with pytest.raises(SystemExit) as exit_info:
            main()
        assert exit_info.value.code == 1
        assert capsys.readouterr().err.endswith(message)
    monkeypatch.setattr(imix.data.named, "list_datasets", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main()


def test_a_closed_pipe_prints_no_error():
    command = f"{sys.executable} -m imix reproduce --list | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout.split()[:2] == ["cells", "runs"]
    assert done.stderr == ""
