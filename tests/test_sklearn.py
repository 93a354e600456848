"""The estimators: scikit-learn's estimator checks, pipelines, data frames, missing values."""

import argparse
import pickle
import runpy
from pathlib import Path

import joblib
import numpy as np
import pandas
import polars
import pyarrow
import pytest
import sklearn
from sklearn.datasets import load_wine
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import imix
from imix import IMixClassifier, IMixRegressor, IMixTransformer, InputError
from imix.train import finetune

X, y = load_wine(return_X_y=True)
QUICK = {"epochs": 3, "batch_size": 64, "encoder": "mlp:16-32", "random_state": 0}


TINY = IMixTransformer(epochs=2, batch_size=64, encoder="mlp:16-32", random_state=0)


@parametrize_with_checks([IMixTransformer(epochs=2, batch_size=16, encoder="mlp:8-16", random_state=0)])
def test_scikit_learns_estimator_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [IMixClassifier(TINY, epochs=20, random_state=0), IMixRegressor(TINY, epochs=20, lr=0.01, random_state=0)]
)
def test_scikit_learns_checks_of_classifiers_and_regressors_pass(estimator, check):
    check(estimator)


def test_a_classifier_uses_unlabeled_rows_and_keeps_the_type_of_the_classes():
    labels = np.array(["red", "green", "blue"], object)[y]
    labels[::2] = None
    classifier = IMixClassifier(IMixTransformer(**QUICK), epochs=20, random_state=0).fit(X, labels)
    assert classifier.classes_.tolist() == ["blue", "green", "red"]
    predicted = classifier.predict(X[::2])
    assert (predicted == np.array(["red", "green", "blue"])[y[::2]]).mean() > 0.9
    assert classifier.predict_proba(X).shape == (178, 3)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(classifier)).predict(X), classifier.predict(X))


def test_a_fitted_transformer_is_fine_tuned_without_training_it_again():
    transformer = IMixTransformer(**QUICK).fit(X)
    weights = {name: value.clone() for name, value in transformer.encoder_.state_dict().items()}
    classifier = IMixClassifier(FrozenEstimator(transformer), epochs=5, random_state=0).fit(X[::5], y[::5])
    assert classifier.transformer_ is transformer
    assert all(value.equal(transformer.encoder_.state_dict()[name]) for name, value in weights.items())


def test_the_unlabeled_loss_is_that_of_the_transformers_method(monkeypatch):
    methods = []
    build = finetune.build_method
    monkeypatch.setattr(
        finetune, "build_method", lambda settings, *rest: methods.append(settings) or build(settings, *rest)
    )
    transformer = IMixTransformer("moco", queue=64, **QUICK)
    IMixClassifier(transformer, epochs=2, unlabeled_weight=0.1, random_state=0).fit(X, y)
    assert {(settings.method, settings.queue) for settings in methods} == {("moco", 64)}


def test_a_regressor_ignores_rows_without_a_target():
    target = X[:, 0] * 2 + 1
    partly = np.where(np.arange(len(X)) % 3, target, np.nan)
    regressor = IMixRegressor(IMixTransformer(**QUICK), epochs=20, random_state=0).fit(X, partly)
    assert regressor.score(X, target) > 0.9


def test_a_data_frame_with_categories_is_classified():
    frame = pandas.DataFrame({"color": np.array(["a", "b", "c"])[y], "size": X[:, 0]})
    classifier = IMixClassifier(IMixTransformer(**QUICK), epochs=5, random_state=0).fit(frame, y)
    assert (classifier.predict(frame) == y).mean() > 0.95
    assert list(classifier.feature_names_in_) == ["color", "size"]


@pytest.mark.slow
def test_a_pipeline_with_a_classifier_supports_cross_validation_and_grid_search():
    pipeline = make_pipeline(IMixTransformer(epochs=20, random_state=0), LogisticRegression(max_iter=1000))
    assert cross_val_score(pipeline, X, y, cv=2).mean() > 0.8
    search = GridSearchCV(pipeline, {"imixtransformer__mix": ["none", "mixup"]}, cv=2).fit(X, y)
    assert set(search.cv_results_["param_imixtransformer__mix"]) == {"none", "mixup"}


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
def test_data_frames_keep_their_column_names(frame):
    names = [f"column {i}" for i in range(X.shape[1])]
    table = frame({name: X[:, i] for i, name in enumerate(names)})
    transformer = IMixTransformer(**QUICK).fit(table)
    assert list(transformer.feature_names_in_) == names
    expected = IMixTransformer(**QUICK).fit(X).transform(X.astype(np.float32))
    np.testing.assert_allclose(transformer.transform(table), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_set_output_returns_a_data_frame(container):
    features = IMixTransformer(**QUICK).set_output(transform=container).fit_transform(X)
    assert features.shape == (178, 8)
    assert list(features.columns)[:2] == ["imixtransformer0", "imixtransformer1"]


def test_scaling_is_fitted_on_the_training_rows_only():
    transformer = IMixTransformer(**QUICK).fit(X[:100])
    learned = [column.mean[0] for column in transformer.table_.columns]
    np.testing.assert_allclose(learned, X[:100].mean(0))


def test_supervised_methods_use_y_and_others_do_not():
    plain = IMixTransformer(**QUICK)
    assert np.array_equal(plain.fit(X).transform(X), plain.fit(X, y).transform(X))
    supervised = IMixTransformer(**QUICK, method="supnpair").fit(X, y)
    assert supervised.transform(X).shape == (178, 8)
    with pytest.raises((ValueError, InputError), match=r"label|requires y"):
        IMixTransformer(**QUICK, method="supnpair").fit(X)


@pytest.mark.parametrize("method", ["moco", "byol"])
def test_parameters_of_moco_and_byol_can_be_set(method):
    assert (
        IMixTransformer(**QUICK, method=method, head="linear", dim=4, queue=32, momentum=0.9, symmetric=True)
        .fit(X)
        .transform(X)
        .shape
    ) == (178, 8)
    with pytest.raises(ValueError, match="`momentum` must be between 0 and 1"):
        IMixTransformer(**QUICK, method=method, momentum=2.0).fit(X)


def test_the_length_can_be_chosen_within_a_time_budget():
    limited = IMixTransformer(encoder="mlp:8-8", epochs="auto", batch_size="auto", minutes=1e-9).fit(X)
    assert limited.history_[-1]["epoch"] == 1
    with pytest.raises(ValueError, match="`minutes` needs `epochs='auto'`"):
        IMixTransformer(minutes=1).fit(X)


def test_invalid_parameters_are_rejected_by_name():
    with pytest.raises(ValueError, match="unknown `method` 'pca'; choose from npair"):
        IMixTransformer(method="pca").fit(X)
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        IMixTransformer(**QUICK).fit(X[:1])


def test_shared_parameters_have_the_defaults_of_settings():
    settings, parameters = imix.Settings(), IMixTransformer().get_params()
    shared = {name for name in parameters if hasattr(settings, name)} - {"epochs"}
    assert {name: parameters[name] for name in shared} == {name: getattr(settings, name) for name in shared}


def people(n=90):
    rng = np.random.default_rng(0)
    label = np.arange(n) % 3
    return pandas.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, rng.normal(4 * label, 1)),
            "town": np.where(rng.random(n) < 0.1, None, np.array(["Rome", "Oslo", "Bern"])[label]),
            "rooms": rng.integers(1, 5, n),
            "since": pandas.Timestamp("2020-01-01") + pandas.to_timedelta(rng.integers(0, 900, n), "D"),
        }
    ), np.array(["a", "b", "c"])[label]


@pytest.mark.parametrize("container", ["pandas", "polars", "arrow"])
def test_a_pipeline_fits_a_frame_with_strings_and_missing_values(container):
    frame, label = people()
    convert = {"pandas": lambda f: f, "polars": polars.from_pandas, "arrow": pyarrow.Table.from_pandas}[container]
    pipeline = make_pipeline(IMixTransformer(**QUICK | {"encoder": "mlp:64-256"}), LogisticRegression(max_iter=2000))
    assert pipeline.fit(convert(frame), label).score(convert(frame), label) > 0.8
    new = frame[:5].assign(town=["Lima", None, "Rome", "Oslo", "Bern"], size=np.nan)
    assert set(pipeline.predict(convert(new))) <= {"a", "b", "c"}


def test_column_types_can_be_set_and_missing_columns_are_named():
    frame, _ = people()
    transformer = IMixTransformer(**QUICK, columns={"rooms": "numeric", "since": "drop"}).fit(frame)
    assert {c.name: c.kind for c in transformer.table_.columns} == {
        "size": "numeric",
        "rooms": "numeric",
        "town": "categorical",
    }
    with pytest.raises(ValueError, match="town"):
        transformer.transform(frame.drop(columns="town"))
    again = pickle.loads(pickle.dumps(transformer))
    assert np.array_equal(again.transform(frame), transformer.transform(frame))


def test_missing_values_are_imputed_even_if_training_had_none():
    transformer = IMixTransformer(**QUICK).fit(X)
    missing, imputed = X[:1].copy(), X[:1].copy()
    missing[0, 3], imputed[0, 3] = np.nan, np.median(X[:, 3])
    np.testing.assert_allclose(transformer.transform(missing), transformer.transform(imputed))
    with_missing = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    assert np.isfinite(IMixTransformer(**QUICK).fit_transform(with_missing)).all()


@pytest.mark.slow
def test_features_add_to_columns_with_few_labels(monkeypatch):
    """Digits as a table, ten labeled rows of each class, mean over five draws of the labels."""
    benchmarks = Path(__file__).parents[1] / "benchmarks"
    monkeypatch.syspath_prepend(str(benchmarks))
    measure = runpy.run_path(str(benchmarks / "few_labels.py"))["measure"]
    args = argparse.Namespace(label="class", settings={"epochs": 60}, labels_per_class=[10], trees=False)
    lines = measure("digits", "default", 0, args)
    accuracies = {line["representation"]: float(line["accuracy"]) for line in lines if line["labels"] == 10}
    assert accuracies["inputs + features"] > accuracies["inputs"] + 1, accuracies


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_the_global_transform_output_does_not_change_the_features(container):
    expected = IMixTransformer(**QUICK).fit_transform(X)
    with sklearn.config_context(transform_output=container):
        features = IMixTransformer(**QUICK).fit_transform(X)
    np.testing.assert_array_equal(np.asarray(features), expected)


def test_masked_values_are_missing_values():
    masked = np.ma.masked_array(X, X > 2)
    expected = IMixTransformer(**QUICK).fit_transform(np.where(X > 2, np.nan, X))
    np.testing.assert_array_equal(IMixTransformer(**QUICK).fit_transform(masked), expected)


def test_fits_in_parallel_threads_equal_a_single_fit():
    expected = IMixTransformer(**QUICK).fit_transform(X)
    results = joblib.Parallel(2, "threading")(
        joblib.delayed(lambda: IMixTransformer(**QUICK).fit_transform(X))() for _ in range(3)
    )
    for features in results:
        np.testing.assert_array_equal(features, expected)


@pytest.mark.parametrize("kind", ["masked", "nullable"])
def test_masked_and_null_targets_mean_no_label(kind):
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.tile([0, 1, 9, 1], 10)
    if kind == "masked":
        labels = np.ma.array(y, mask=y == 9)
    else:
        labels = pandas.array(y, dtype="Int64")
        labels[y == 9] = None
    transformer = imix.IMixTransformer(epochs=1, random_state=0)
    assert list(imix.IMixClassifier(transformer, epochs=1, random_state=0).fit(X, labels).classes_) == [0, 1]
