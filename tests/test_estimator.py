"""IMixTransformer among scikit-learn's own."""

import numpy as np
import pandas
import polars
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import imix
from imix import IMixTransformer, InputError

X, y = load_wine(return_X_y=True)
QUICK = {"epochs": 3, "batch_size": 64, "encoder": "mlp:16-32", "random_state": 0}


@parametrize_with_checks([IMixTransformer(epochs=2, batch_size=16, encoder="mlp:8-16", random_state=0)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_a_pipeline_with_a_classifier_fits_scores_and_searches():
    pipeline = make_pipeline(IMixTransformer(epochs=20, random_state=0), LogisticRegression(max_iter=1000))
    assert cross_val_score(pipeline, X, y, cv=2).mean() > 0.8
    search = GridSearchCV(pipeline, {"imixtransformer__mix": ["none", "mixup"]}, cv=2).fit(X, y)
    assert set(search.cv_results_["param_imixtransformer__mix"]) == {"none", "mixup"}


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
def test_frames_are_taken_with_their_column_names(frame):
    names = [f"column {i}" for i in range(X.shape[1])]
    table = frame({name: X[:, i] for i, name in enumerate(names)})
    transformer = IMixTransformer(**QUICK).fit(table)
    assert list(transformer.feature_names_in_) == names
    expected = IMixTransformer(**QUICK).fit(X).transform(X.astype(np.float32))
    np.testing.assert_allclose(transformer.transform(table), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_features_come_as_a_frame_if_asked(container):
    features = IMixTransformer(**QUICK).set_output(transform=container).fit_transform(X)
    assert features.shape == (178, 8)
    assert list(features.columns)[:2] == ["imixtransformer0", "imixtransformer1"]


def test_scaling_is_learned_from_the_training_rows_alone():
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


def test_parameters_that_cannot_be_are_refused_by_name():
    with pytest.raises(ValueError, match="unknown method 'pca'; choose from npair"):
        IMixTransformer(method="pca").fit(X)
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        IMixTransformer(**QUICK).fit(X[:1])


def test_defaults_are_those_of_settings_where_names_agree():
    settings, parameters = imix.Settings(), IMixTransformer().get_params()
    shared = {name for name in parameters if hasattr(settings, name)} - {"epochs"}
    assert {name: parameters[name] for name in shared} == {name: getattr(settings, name) for name in shared}
