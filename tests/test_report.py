"""The report: arms, tables, maps, and the page in a real browser."""

import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import polars
import pytest
import soundfile
import torch
from PIL import Image
from plotly.offline import get_plotlyjs

import imix
from imix.data import Data, Tensors
from imix.errors import InputError
from imix.evaluation import Result
from imix.files import read_lines, write_lines
from imix.reports import maps, page, samples
from imix.reports.arms import Arm, differences, group, in_words, told
from imix.reports.baselines import set_apart
from imix.reports.maps import draw_map, neighbours, places, save_map
from imix.run import Run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUICK = imix.Settings(epochs=12, batch_size=16, encoder="small", device="cpu")
HOSTILE = "<img src=x onerror=window.hurt=1>"


def content_of(path: Path) -> dict:
    found = re.search(r'id="content">(.*?)</script>', path.read_text(), re.S)
    return json.loads(found.group(1))


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("imix.data.sounds.CACHE", tmp_path_factory.mktemp("cache"))
        yield


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 90)
    rows = {
        "height": kind + 0.3 * rng.standard_normal(90),
        "colour": np.array(["red", "green", HOSTILE])[kind],
        "breed": np.array(["cat", "dog", HOSTILE])[kind],
    }
    path = tmp_path_factory.mktemp("table") / "animals.csv"
    polars.DataFrame(rows).write_csv(path)
    return path


@pytest.fixture(scope="module")
def runs(table, tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    made = []
    for name, settings in {"plain": replace(QUICK, mix="none"), "mixed": QUICK}.items():
        for seed in range(2):
            reading = imix.Reading(label="breed")
            run = imix.pretrain(
                table, replace(settings, seed=seed), reading, out=folder / f"{name}-{seed}", progress=False
            )
            assert run.path is not None
            imix.evaluate(run)
            imix.evaluate(run, protocol="knn")
            made.append(run.path)
    return made


@pytest.fixture(scope="module")
def unlabelled(table) -> Run:
    """A run that saw neither of two columns that could be its label."""
    reading = imix.Reading(columns={"breed": "drop", "colour": "drop"})
    return imix.pretrain(table, replace(QUICK, epochs=1), reading, progress=False)


@pytest.fixture(scope="module")
def written(runs, tmp_path_factory) -> Path:
    return imix.report(runs, tmp_path_factory.mktemp("page") / "report.html", samples=60)


# What is on it.


def test_runs_that_differ_in_their_seed_are_one_arm(runs):
    arms = group([Run.load(path) for path in runs])
    assert [(arm.name, len(arm.runs)) for arm in arms] == [("N-pair", 2), ("N-pair + i-Mix", 2)]


def test_arms_of_one_name_are_told_apart_by_their_settings(runs):
    first = Run.load(runs[0])
    other = Run(first.encoder, json.loads(json.dumps(first.config)), first.metrics)
    other.config["settings"]["temperature"] = 0.7
    assert [arm.name for arm in group([first, other])] == ["N-pair, temperature 0.2", "N-pair, temperature 0.7"]


def other_than(run: Run, part: str, **values: object) -> Run:
    """The same run, as if something of its config had been another."""
    config = json.loads(json.dumps(run.config))
    place = config["data"]["reading"] if part == "reading" else config[part]
    assert values.keys() <= place.keys()
    place.update(values)
    return Run(run.encoder, config, run.metrics)


def test_runs_that_were_read_or_built_differently_are_arms_of_their_own(runs):
    first = Run.load(runs[0])
    others = {
        "standardise none": other_than(first, "reading", standardise="none"),
        "columns height drop, colour drop": other_than(first, "reading", columns={"height": "drop", "colour": "drop"}),
        "no label": other_than(first, "reading", label=None),
        "encoder custom": other_than(first, "architecture", encoder="custom"),
    }
    for called, other in others.items():
        (arm, another) = group([first, other])
        assert another.name == f"{arm.name.split(',')[0]}, {called}"
        assert len(differences([told(first), told(other)])) == 1


def test_what_is_not_given_is_none_or_the_default():
    assert in_words("test", None) == "no test" and in_words("masking", None) == "masking by default"
    assert in_words("columns", {}) == "columns by default" and in_words("milestones", (60, 80)) == "milestones 60, 80"
    assert in_words("input_mix", 0) == "input_mix 0" and in_words("fold", False) == "fold False"


def test_a_table_of_other_values_makes_another_arm(runs):
    first = Run.load(runs[0])
    table = json.loads(json.dumps(first.config["data"]["table"]))
    table["columns"][0]["mean"] = 7.0
    other = other_than(first, "data", table=table)
    assert len(group([first, other])) == 2
    assert differences([told(first), told(other)]) == ["table_values"]
    other = other_than(first, "data", fingerprint="another")
    assert [arm.name.split(", ")[1] for arm in group([first, other])][1] == "fingerprint another"


def test_the_place_of_data_and_the_seed_make_no_other_arm(runs):
    first = Run.load(runs[0])
    moved = other_than(first, "reading", data_dir="/elsewhere")
    assert len(group([first, moved, other_than(first, "settings", seed=5)])) == 1


def test_the_page_says_how_data_was_read_where_that_differs(runs, tmp_path):
    first = Run.load(runs[0])
    arms = group([first, other_than(first, "reading", standardise="none", label=HOSTILE)])
    path = page.write_report(tmp_path / "r.html", "two", arms, [], "", "", samples=10)
    assert "<th>standardise</th><td>train</td><td>none</td>" in path.read_text()
    assert "knn_every 0" in path.read_text() and "no test" in path.read_text() and "table 1 numeric" in path.read_text()
    assert HOSTILE not in path.read_text()


def test_numbers_on_the_page_are_those_in_the_run_folders(runs, written):
    text = written.read_text()
    for pair in (runs[:2], runs[2:]):
        for protocol in ("linear", "knn"):
            values = [
                100 * line["value"]
                for run in pair
                for line in read_lines(run / "evaluations.jsonl")
                if line["protocol"] == protocol
            ]
            assert f">{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}</td>" in text
    curves = {curve["key"]: curve for curve in content_of(written)["curves"]}
    losses = [record["loss"] for record in read_lines(runs[0] / "metrics.jsonl")]
    assert curves["loss"]["lines"][0]["y"] == pytest.approx(losses, rel=1e-4)
    assert {"loss", "rank", "alignment", "uniformity"} <= curves.keys()


def test_the_page_needs_nothing_from_elsewhere(written):
    assert not re.search(r'(src|href)="http', written.read_text().replace(get_plotlyjs(), ""))


def test_rows_show_the_values_of_the_file(table, written):
    shown = next(iter(content_of(written)["samples"].values()))
    frame = polars.read_csv(table)
    assert shown["columns"] == ["height", "colour", "breed"] and len(shown["rows"]) == 60
    for number, row in zip(shown["numbers"], shown["rows"], strict=True):
        assert row[1] == frame["colour"][number] and row[0] == pytest.approx(frame["height"][number], rel=1e-3)


def test_columns_that_were_dropped_are_not_on_the_page(table, tmp_path):
    reading = imix.Reading(label="breed", columns={"colour": "drop"})
    imix.pretrain(table, replace(QUICK, epochs=1), reading, out=tmp_path / "run", progress=False)
    shown = next(iter(content_of(imix.report(tmp_path / "run"))["samples"].values()))
    assert shown["columns"] == ["height", "breed"]


def test_a_classifier_mixes_no_virtual_labels(runs):
    supervised = other_than(Run.load(runs[0]), "settings", method="supervised", mix="cutmix")
    assert group([supervised])[0].name == "classifier + CutMix"


def quick_run(data: Path, out: Path, label: str, fraction: float = 1.0) -> Path:
    reading = imix.Reading(label=label, fraction=fraction)
    imix.pretrain(data, replace(QUICK, epochs=1), reading, out=out, progress=False)
    imix.evaluate(out)
    return out


@pytest.fixture(scope="module")
def read_differently(table, tmp_path_factory) -> dict:
    """The page of three runs on one file: all rows, half of them, and another column as the label."""
    folder = tmp_path_factory.mktemp("differently")
    made = [quick_run(table, folder / f"{n}", *how) for n, how in enumerate([("breed",), ("breed", 0.5), ("colour",)])]
    return content_of(imix.report(made, folder / "report.html", samples=20))


def test_every_point_shows_its_own_row(table, read_differently):
    frame = polars.read_csv(table)
    assert len(read_differently["maps"]) == 3
    for drawn, label in zip(read_differently["maps"], ("breed", "breed", "colour"), strict=True):
        shown = read_differently["samples"][drawn["samples"]]
        at = shown["columns"].index(label)
        assert [row[at] for row in shown["rows"]] == [shown["classes"][number] for number in shown["labels"]]
        assert [row[at] for row in shown["rows"]] == frame[label].gather(shown["numbers"]).to_list()


def test_maps_of_the_same_samples_share_them(written, read_differently):
    assert len(content_of(written)["samples"]) == 1 and len(content_of(written)["maps"]) == 2
    first, half, other = (drawn["samples"] for drawn in read_differently["maps"])
    assert first == half != other


def forget_classes(run: Path) -> None:
    """Leave no names of classes in a run's results, as older versions did."""
    lines = read_lines(run / "evaluations.jsonl")
    for line in lines:
        line["details"].pop("classes", None)
    write_lines(run / "evaluations.jsonl", lines)


def test_classes_of_a_confusion_are_those_of_the_data_it_is_of(table, tmp_path):
    cars = tmp_path / "cars.csv"
    makes = {"cat": "audi", "dog": "bmw", HOSTILE: "citroen"}
    polars.read_csv(table).with_columns(polars.col("breed").replace_strict(makes)).write_csv(cars)
    on_animals = quick_run(table, tmp_path / "animals", "breed")
    imix.evaluate(on_animals, cars)
    forget_classes(on_animals)
    alone = content_of(imix.report([on_animals], tmp_path / "r.html", samples=20))
    assert [one["classes"] for one in alone["confusions"]] == [[HOSTILE, "cat", "dog"], ["0", "1", "2"]]
    both = content_of(imix.report([on_animals, quick_run(cars, tmp_path / "c", "breed")], tmp_path / "r.html"))
    assert [one["classes"] for one in both["confusions"]] == [
        [HOSTILE, "cat", "dog"],
        ["audi", "bmw", "citroen"],
        ["audi", "bmw", "citroen"],
    ]


def test_evaluations_by_two_columns_stand_side_by_side(table, tmp_path):
    reading = imix.Reading(label="breed", columns={"colour": "drop"})
    run = imix.pretrain(table, replace(QUICK, epochs=1), reading, out=tmp_path / "run", progress=False)
    for label in (None, "colour"):
        imix.evaluate(run, protocol="knn", label=label)
    (arm,) = group([run])
    assert [*arm.results] == ["knn", "knn, label colour"]
    assert "label colour" in str(arm.results["knn, label colour"][0])


def with_results(run: Run, path: Path, *results: Result) -> Run:
    """The same run, with these results in a folder."""
    path.mkdir(parents=True)
    write_lines(path / "evaluations.jsonl", [asdict(result) for result in results])
    return replace(run, path=path)


def found(
    data: str, protocol: str = "linear", value: float = 0.5, majority: float | None = None, **constants
) -> Result:
    details = {} if majority is None else {"majority_accuracy": majority}
    return Result(protocol, data, value, constants, details)


def test_results_on_different_test_files_have_columns_of_their_own(table, tmp_path):
    reading = imix.Reading(label="breed", test=str(table))
    run = imix.pretrain(table, replace(QUICK, epochs=1), reading, out=tmp_path / "run", progress=False)
    later = tmp_path / "later.csv"
    polars.read_csv(table).head(30).write_csv(later)
    for test in (None, str(later)):
        imix.evaluate(run, protocol="knn", test=test)
    (arm,) = group([Run.load(tmp_path / "run")])
    assert [*arm.results] == ["knn", "knn, tested on later.csv"]
    assert [result.constants["test"] for column in arm.results.values() for result in column] == [90, 30]


def columns_of(arms: list[Arm]) -> list[list[str]]:
    return [[*arm.results] for arm in arms]


def test_results_on_different_data_share_no_column(runs, tmp_path):
    first = Run.load(runs[0])
    one = with_results(other_than(first, "data", name="/x/a.csv"), tmp_path / "1", found("/x/a.csv", value=0.9))
    other = with_results(
        other_than(first, "data", name="/x/b.csv"), tmp_path / "2", found("/x/b.csv"), found("/x/a.csv", value=0.8)
    )
    assert columns_of(group([one])) == [["linear"]]
    assert columns_of(group([other])) == [["linear", "linear on a.csv"]]
    arms = group([one, other])
    assert columns_of(arms) == [["linear on a.csv"], ["linear on b.csv", "linear on a.csv"]]
    assert page._table(arms, []).count("best") == 1


def test_numbers_made_with_different_constants_share_no_column(runs, tmp_path):
    first = Run.load(runs[0])
    name = first.config["data"]["name"]
    other = other_than(first, "settings", temperature=0.7)
    small = with_results(first, tmp_path / "1", found(name, "knn", k=1, temperature=0.07, train=72), found(name, "fed"))
    large = with_results(other, tmp_path / "2", found(name, "knn", 0.6, k=90, temperature=0.07, train=60))
    arms = group([small, large])
    assert columns_of(arms) == [["knn, k 1", "fed"], ["knn, k 90"]]
    assert page._table(arms, []).count("best") == 0
    assert "knn, k 1: k 1," in page._constants(arms) and "knn, k 90: k 90," in page._constants(arms)
    (one_arm,) = group([small, replace(large, config=first.config)])
    assert (one_arm.shown("knn, k 1"), one_arm.shown("knn, k 90")) == ("50.0", "60.0")
    assert columns_of(group([large])) == [["knn"]]


def test_constants_that_make_no_other_protocol_do_not_part_numbers(runs, tmp_path):
    first = Run.load(runs[0])
    name = first.config["data"]["name"]
    told = {"rates": (1, 3), "momentum": 0, "milestones": ()}
    one = with_results(first, tmp_path / "1", found(name, **told, seed=0, train=72, test="18 held out of train"))
    other = with_results(first, tmp_path / "2", found(name, **told, seed=1, train=70, test=20, unlabelled=2))
    (arm,) = group([one, other])
    assert [*arm.results] == ["linear"] and len(arm.results["linear"]) == 2
    third = with_results(first, tmp_path / "3", found(name, rates=(30,), momentum=0.9, milestones=(60, 80)))
    (arm,) = group([one, third])
    assert [*arm.results] == [
        "linear, rates 1, 3, momentum 0, milestones none",
        "linear, rates 30, momentum 0.9, milestones 60, 80",
    ]


def test_inputs_are_compared_with_features_of_the_same_constants(runs, tmp_path):
    first = Run.load(runs[0])
    name = first.config["data"]["name"]
    features = [found(name, "knn", 0.7, k=20), found(name, "knn", 0.8, k=1)]
    run = with_results(first, tmp_path / "1", *features, found(name, "knn", 0.6, k=20, of="inputs"))
    (kept,), (row,) = set_apart(group([run]))
    assert [*kept.results] == ["knn, k 20", "knn, k 1"]
    assert [*row.results] == ["knn, k 20"] and row.shown("knn, k 20") == "60.0"


def test_files_of_one_name_are_told_apart_by_their_folders(runs, tmp_path):
    first = Run.load(runs[0])
    names = ("/x/train.csv", "/y/train.csv")
    one, other = (with_results(other_than(first, "data", name=name), tmp_path / name[1], found(name)) for name in names)
    arms = group([one, other])
    assert [arm.name for arm in arms] == ["N-pair, data /x/train.csv", "N-pair, data /y/train.csv"]
    assert columns_of(arms) == [["linear on /x/train.csv"], ["linear on /y/train.csv"]]


def test_results_by_one_label_share_a_column_whether_training_knew_it_or_not(table, tmp_path):
    made = []
    for label, dropped in (("breed", ("colour",)), (None, ("breed", "colour"))):
        reading = imix.Reading(label=label, columns=dict.fromkeys(dropped, "drop"))
        run = imix.pretrain(table, replace(QUICK, epochs=1), reading, out=tmp_path / str(label), progress=False)
        imix.evaluate(run, protocol="knn", label=None if label else "breed")
        imix.evaluate(run, protocol="fed")
        made.append(run)
    imix.evaluate(made[1], protocol="knn", label="colour")
    arms = group(made)
    assert columns_of(arms) == [["knn, label breed", "fed"], ["knn, label breed", "fed", "knn, label colour"]]
    assert [arm.name for arm in arms] == [
        "N-pair + i-Mix, label breed, columns colour drop",
        "N-pair + i-Mix, no label, columns breed drop, colour drop",
    ]


def test_inputs_are_a_row_where_all_arms_agree_on_them_and_never_replace_features(runs, tmp_path):
    first = Run.load(runs[0])
    name = first.config["data"]["name"]
    second = other_than(first, "settings", temperature=0.7)

    def arms(folder: str, *inputs: float | None) -> list[Arm]:
        made = []
        for at, (run, value) in enumerate(zip((first, second), inputs, strict=True)):
            last = [] if value is None else [found(name, value=value, of="inputs")]
            made.append(with_results(run, tmp_path / folder / str(at), found(name, value=0.7), *last))
        return group(made)

    kept, (row,) = set_apart(arms("agree", 0.6, 0.6))
    assert columns_of(kept) == [["linear"], ["linear"]] and kept[0].shown("linear") == "70.0"
    assert row.name == "the inputs themselves" and row.shown("linear") == "60.0"
    for apart in (arms("differ", 0.6, 0.5), arms("lacking", 0.6, None)):
        assert set_apart(apart) == (apart, [])
        assert apart[0].shown("linear") == "70.0" and apart[0].shown("linear, of the inputs") == "60.0"


def test_the_most_frequent_class_is_a_row_where_all_results_agree_on_it(runs, tmp_path):
    first = Run.load(runs[0])
    name = first.config["data"]["name"]
    second = other_than(first, "settings", temperature=0.7)
    shares = {"linear": (0.4, 0.4 + 1e-12), "knn": (0.4, 0.41), "pinv": (None, None), "fed": (None, None)}
    runs = [
        with_results(run, tmp_path / str(at), *(found(name, kind, majority=of[at]) for kind, of in shares.items()))
        for at, run in enumerate((first, second))
    ]
    path = page.write_report(tmp_path / "r.html", "two", group(runs), [], "", "", samples=10)
    assert "<th>most frequent class</th><td>40.0</td><td></td><td></td><td></td></tr>" in path.read_text()


def test_classes_that_came_with_a_result_name_those_of_its_confusion(runs):
    first = Run.load(runs[0])
    for classes, shown in ((["a", "b"], ["a", "b"]), (["a", "b", "c"], ["0", "1"])):
        result = Result("linear", "elsewhere", 0.5, {}, {"confusion": [[1, 0], [0, 1]], "classes": classes})
        (confusion,) = page._confusions([Arm("N-pair", [first], {"linear": [result]})], {})
        assert confusion["classes"] == shown


def test_run_folders_of_many_runs_are_in_the_table_of_settings(runs, written, tmp_path):
    cells = "".join(f"<td>{one}<br>{other}</td>" for one, other in (runs[:2], runs[2:]))
    assert f"<tr><th>run folder</th>{cells}</tr>" in written.read_text()
    assert "run folder" not in page._settings(group([Run.load(runs[0])]))


def test_a_page_of_many_data_sets_is_called_so(runs, tmp_path, monkeypatch):
    first = Run.load(runs[0])
    others = [other_than(first, "data", name=name) for name in ("/x/a.csv", "/x/b.csv")]
    monkeypatch.setattr(page, "write_report", lambda path, title, *_: title)
    assert imix.report([first, *others], tmp_path / "r.html") == "3 runs on 3 data sets"
    assert imix.report([first, first, others[0]], tmp_path / "r.html") == "3 runs on 2 data sets"
    assert imix.report(runs, tmp_path / "r.html") == "2 ways to learn animals.csv"
    assert imix.report(runs[0], tmp_path / "r.html") == "N-pair on animals.csv"


def test_confusions_are_those_of_the_linear_evaluation(runs, written):
    counts = content_of(written)["confusions"][0]["counts"]
    assert counts == read_lines(runs[0] / "evaluations.jsonl")[0]["details"]["confusion"]


def test_a_run_that_was_not_evaluated_is(table, tmp_path):
    imix.pretrain(table, QUICK, imix.Reading(label="breed"), out=tmp_path / "run", progress=False)
    path = imix.report(tmp_path / "run", tmp_path / "r.html", samples=20)  # one run needs no list
    assert [line["protocol"] for line in read_lines(tmp_path / "run" / "evaluations.jsonl")] == ["linear", "knn", "fed"]
    assert "fed (10<sup>" in path.read_text()


def test_a_run_on_arrays_has_a_page_without_a_map(tmp_path):
    imix.pretrain(torch.randn(40, 5), QUICK, out=tmp_path / "run", progress=False)
    content = content_of(imix.report([tmp_path / "run"], tmp_path / "r.html"))
    assert content["maps"] == [] and content["curves"]


def test_images_and_sounds_are_shown(tmp_path):
    rng = np.random.default_rng(0)
    for at in range(24):
        (tmp_path / "images" / "ab"[at % 2]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "sounds" / "ab"[at % 2]).mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / "ab"[at % 2] / f"{at}.png")
        soundfile.write(tmp_path / "sounds" / "ab"[at % 2] / f"{at}.wav", rng.normal(size=4000) * 0.1, 16000)
    for kind in ("images", "sounds"):
        settings = replace(QUICK, epochs=1)
        imix.pretrain(tmp_path / kind, settings, out=tmp_path / f"{kind}-run", progress=False)
        content = content_of(imix.report([tmp_path / f"{kind}-run"], tmp_path / f"{kind}.html", samples=20))
        shown = next(iter(content["samples"].values()))
        assert shown["sprite"]["uri"].startswith("data:image/webp") and shown["sprite"]["n"] == 20
        assert len(shown["names"]) == 20
        assert ("sounds" in shown) == (kind == "sounds")
    assert all(sound.startswith("data:audio/ogg") for sound in shown["sounds"])


def test_pictures_are_made_small_in_pieces(monkeypatch):
    class Watched(Tensors):
        def batches(self, rows):
            for batch in super().batches(rows):
                assert len(batch[0]) <= samples.PIECE
                yield batch

        def take(self, rows):
            return Watched(self.inputs[rows])

    images = torch.rand(20, 4, 64, 80, generator=torch.Generator().manual_seed(0)) * 3 - 1
    whole = samples.show(None, Data("x", Tensors(images)), samples.choose(Data("x", Tensors(images))))
    monkeypatch.setattr(samples, "PIECE", 6)
    data = Data("x", Watched(images))
    assert samples.show(None, data, samples.choose(data))["sprite"] == whole["sprite"]
    assert whole["sprite"]["n"] == 20 and whole["sprite"]["width"] == samples.THUMB


def test_a_map_may_be_coloured_by_an_input(table, tmp_path):
    run = imix.pretrain(table, replace(QUICK, epochs=1), out=tmp_path / "run", progress=False)
    drawn = draw_map(run, tmp_path / "map.svg", label="breed", classes=["cat", "dog"]).read_text()
    assert ">cat<" in drawn and ">dog<" in drawn and HOSTILE not in drawn
    frame = polars.read_csv(table)
    assert ">green<" in draw_map(run, tmp_path / "map.svg", frame, label="colour").read_text()
    with pytest.raises(InputError, match="column 'height' has 90 values, too many to colour a map by"):
        draw_map(run, tmp_path / "map.svg", label="height")
    with pytest.raises(InputError, match="no column 'bread'"):
        draw_map(run, tmp_path / "map.svg", label="bread")


def test_runs_that_are_not_finished_are_left_out_by_name(runs, tmp_path, capsys):
    shutil.copytree(runs[0], tmp_path / "begun")
    (tmp_path / "begun" / "encoder.safetensors").unlink()
    imix.report([tmp_path / "begun", runs[0]], tmp_path / "r.html")
    assert f"{tmp_path / 'begun'} is not finished, and left out" in capsys.readouterr().err
    with pytest.raises(InputError, match="no encoder at"):
        imix.report([tmp_path / "begun"], tmp_path / "r.html")


def test_bad_wishes_are_refused(runs, tmp_path):
    with pytest.raises(InputError, match="at least one run"):
        imix.report([], tmp_path / "r.html")
    with pytest.raises(InputError, match="no folder"):
        imix.report(runs, tmp_path / "nowhere" / "r.html")
    with pytest.raises(InputError, match=r"r\.pdf'; choose a file that ends in \.html or \.htm"):
        imix.report(runs, tmp_path / "r.pdf")
    with pytest.raises(InputError, match="at least 10"):
        imix.report(runs, tmp_path / "r.html", samples=2)


# Maps.


def test_neighbours_are_the_nearest_by_cosine():
    features = np.random.default_rng(0).normal(size=(1500, 6)).astype(np.float32)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    found = neighbours(features, 3)
    for row in (0, 7, 1200, 1499):
        order = [other for other in np.argsort(-unit @ unit[row]) if other != row]
        assert found[row].tolist() == order[:3]


@pytest.mark.parametrize("n", [1, 2, 3, 40])
def test_places_fill_the_unit_square_and_follow_from_the_seed(n):
    features = np.random.default_rng(0).normal(size=(n, 5)).astype(np.float32)
    where = places(features)
    assert where.shape == (n, 2) and where.min() >= 0 and where.max() <= 1
    assert (where == places(features)).all()
    assert neighbours(features).shape == (n, min(8, n - 1))


def test_a_map_is_drawn_as_svg_and_png(runs, tmp_path):
    svg = draw_map(runs[0], tmp_path / "m.svg", samples=30).read_text()
    assert svg.count('r="3"') == 30 and "<img" not in svg and "cat" in svg
    picture = Image.open(draw_map(runs[0], tmp_path / "m.png", samples=30))
    assert len(np.unique(np.asarray(picture).reshape(-1, 3), axis=0)) > 20
    some = draw_map(runs[0], tmp_path / "some.svg", classes=["cat", "dog"]).read_text()
    assert "cat" in some and "dog" in some and "&lt;img" not in some and "&lt;img" in svg
    with pytest.raises(InputError, match="no class 'cow'"):
        draw_map(runs[0], tmp_path / "m.svg", classes=["cow"])
    with pytest.raises(InputError, match="ends in"):
        save_map(tmp_path / "m.gif", np.zeros((3, 2)), None)


def test_a_map_takes_data_that_was_read_before(tmp_path):
    data = imix.data.load("digits", imix.Reading(fraction=0.3))
    digits = imix.pretrain(data, replace(QUICK, epochs=1), progress=False)
    assert imix.draw_map(digits, tmp_path / "map.svg", data, samples=20).exists()


def test_the_page_of_a_single_run_lies_in_its_folder(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert imix.report(runs[0], samples=20) == runs[0] / "report.html"
    assert imix.report(runs[:2], samples=20) == Path("report.html")
    assert (tmp_path / "report.html").exists()


def test_a_map_is_coloured_by_the_label_that_is_given(unlabelled, tmp_path):
    for label, classes in {"breed": ["cat", "dog"], "colour": ["green", "red"]}.items():
        drawn = draw_map(unlabelled, tmp_path / "m.svg", classes=classes, label=label).read_text()
        assert re.findall(r"<text[^>]*>([^<]*)</text>", drawn) == classes


def test_a_map_that_cannot_be_is_refused_before_any_work(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(maps, "embed", lambda *_, **__: pytest.fail("features were computed"))
    with pytest.raises(InputError, match="ends in"):
        draw_map(runs[0], tmp_path / "m.gif")
    with pytest.raises(InputError, match="no folder"):
        draw_map(runs[0], tmp_path / "nowhere" / "m.svg")
    with pytest.raises(InputError, match="at least 4 samples; got 1"):
        draw_map(runs[0], tmp_path / "m.svg", samples=1)
    with pytest.raises(InputError, match="at least 4 samples; given has 3"):
        draw_map(runs[0], tmp_path / "m.svg", polars.DataFrame({"height": [1.0, 2, 3], "colour": ["red"] * 3}))
    with pytest.raises(InputError, match="have no labels"):
        draw_map(runs[0], tmp_path / "m.svg", polars.DataFrame({"height": [1.0], "colour": ["red"]}), classes=["cat"])
    with pytest.raises(TypeError, match="data_dri"):
        draw_map(runs[0], tmp_path / "m.svg", data_dri="x")


def test_a_map_goes_to_a_path_in_words_and_is_computed_where_asked(runs, tmp_path):
    assert draw_map(runs[0], str(tmp_path / "m.svg"), samples=4, device="cpu").is_file()
    with pytest.raises(InputError, match="device"):
        draw_map(runs[0], str(tmp_path / "m.svg"), samples=4, device="abacus")


# Transfer.


def test_a_mistyped_wish_fails_at_once(runs, table):
    with pytest.raises(TypeError, match="standardize"):
        imix.transfer(runs[:1], [str(table)], standardize=True)


def test_transfer_is_a_row_for_each_run_and_a_column_for_each_data_set(runs, table):
    results = imix.transfer(runs[:2], [str(table), str(table)], "knn")
    assert [[result.protocol for result in row] for row in results] == [["knn", "knn"]] * 2
    assert results[0][0].value == results[0][1].value


def test_transfer_is_by_the_label_that_is_given(unlabelled, table):
    ((result,),) = imix.transfer(unlabelled, str(table), "knn", label="breed")
    assert result.constants["label"] == "breed"


# In a browser.


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


def open_page(browser, path: Path, scheme: str = "light"):
    view = browser.new_page(viewport={"width": 1240, "height": 1000}, color_scheme=scheme)
    said: list[str] = []
    view.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    view.on("pageerror", lambda error: said.append(str(error)))
    view.goto(path.as_uri())
    view.wait_for_selector("#map .plot-container")
    view.evaluate("document.getElementById('map').scrollIntoView()")
    return view, said


def place_of(view, trace: int, point: int) -> tuple[float, float, int]:
    return tuple(
        view.evaluate(
            """([trace, point]) => {
                const plot = document.getElementById('map'), data = plot.data[trace];
                const {xaxis, yaxis} = plot._fullLayout, box = plot.getBoundingClientRect();
                return [box.left + xaxis._offset + xaxis.d2p(data.x[point]),
                        box.top + yaxis._offset + yaxis.d2p(data.y[point]), data.customdata[point]];
            }""",
            [trace, point],
        )
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_renders_without_errors(browser, written, scheme):
    view, said = open_page(browser, written, scheme)
    assert view.locator("h1").inner_text() == "2 ways to learn animals.csv"
    assert view.locator("#curves .plot-container").count() >= 4
    assert view.locator("#confusions .plot-container").count() == 2
    assert view.evaluate("window.hurt") is None and said == []
    view.close()


def test_pointing_shows_a_sample_and_clicking_its_neighbours(browser, written):
    content = content_of(written)
    view, said = open_page(browser, written)
    x, y, point = place_of(view, 1, 2)
    view.mouse.move(x - 40, y - 40)
    view.mouse.move(x, y)
    view.wait_for_function(f"document.getElementById('panel').dataset.point == '{point}'")
    shown = next(iter(content["samples"].values()))
    assert str(shown["rows"][point][0]) in view.locator("#panel").inner_text()
    view.mouse.click(x, y)
    view.wait_for_selector("#panel .near button")
    assert view.locator("#panel .near button").count() == len(content["maps"][0]["near"][point])
    view.locator("#panel .near button").first.click()
    assert view.locator("#panel").get_attribute("data-point") == str(content["maps"][0]["near"][point][0])
    view.get_by_role("tab", name="N-pair + i-Mix").click()
    view.wait_for_timeout(200)
    assert view.evaluate("document.querySelector('[aria-selected=true]').textContent") == "N-pair + i-Mix"
    assert view.evaluate("window.hurt") is None and said == []
    view.close()


@pytest.mark.slow
def test_fifty_thousand_points_are_drawn_quickly(browser, tmp_path, monkeypatch):
    n = 50_000
    rng = np.random.default_rng(0)
    shown = {
        "data": "x",
        "label": None,
        "part": "test",
        "of": n,
        "numbers": list(range(n)),
        "names": [],
        "classes": ["a", "b"],
    }
    shown["labels"] = rng.integers(0, 2, n).tolist()
    where = rng.random((n, 2)).round(4)
    drawn = [{"arm": 0, "samples": "x", "x": where[:, 0].tolist(), "y": where[:, 1].tolist(), "near": [[0]] * n}]
    monkeypatch.setattr(page, "_maps", lambda arms, most: (drawn, {"x": shown}))
    run = imix.pretrain(torch.randn(40, 5), replace(QUICK, epochs=1), progress=False)
    path = page.write_report(tmp_path / "r.html", "many", [Arm("N-pair", [run])], [], "", "")
    started = time.monotonic()
    view, said = open_page(browser, path)
    assert time.monotonic() - started < 30
    assert view.evaluate("document.getElementById('map').data[0].type") == "scattergl"
    assert said == []
    view.close()


def test_hostile_names_stay_text(browser, tmp_path):
    (tmp_path / "pictures" / "a").mkdir(parents=True)
    (tmp_path / "pictures" / HOSTILE.replace("/", "")).mkdir(parents=True)
    rng = np.random.default_rng(0)
    for at in range(20):
        folder = tmp_path / "pictures" / ("a" if at % 2 else HOSTILE)
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(folder / f"{HOSTILE}{at}.png")
    imix.pretrain(tmp_path / "pictures", replace(QUICK, epochs=1), out=tmp_path / HOSTILE, progress=False)
    path = imix.report([tmp_path / HOSTILE], tmp_path / "r.html", samples=20)
    view, said = open_page(browser, path)
    view.evaluate("window.imixShow(3, true)")
    assert HOSTILE in view.locator("#panel").inner_text()
    assert view.evaluate("window.hurt") is None and said == []
    view.close()


# On the command line.


def test_report_map_transfer_and_export_are_commands(runs, table, tmp_path):
    def imix_says(*words: object) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-m", "imix", *map(str, words)], capture_output=True, text=True)

    said = imix_says("report", *runs[:2], "--out", tmp_path / "r.html", "--samples", 20)
    assert said.returncode == 0 and (tmp_path / "r.html").stat().st_size > 1e6, said.stderr
    said = imix_says("map", runs[0], "--out", tmp_path / "m.svg", "--classes", "cat", "dog")
    assert said.returncode == 0 and (tmp_path / "m.svg").exists(), said.stderr
    said = imix_says("transfer", *runs[:2], "--data", table, "--protocol", "knn")
    assert said.returncode == 0 and said.stdout.count("%") == 2, said.stderr
    said = imix_says("evaluate", runs[0], "--protocol", "fed")
    assert said.returncode == 0 and "e-4" in said.stdout, said.stderr
    said = imix_says("export", runs[0], "--format", "timm", "--out", tmp_path / "x.pth")
    assert said.returncode == 2 and "is for ResNets" in said.stderr and "Traceback" not in said.stderr


def test_features_that_are_all_alike_are_one_place():
    assert (places(np.ones((60, 5))) == 0.5).all()
    with pytest.raises(InputError, match="not finite"):
        places(np.full((60, 5), np.nan))
