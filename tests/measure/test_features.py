import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import nn

from allometry import InputError
from allometry.measure import Features, features, frechet_distance

X = np.random.default_rng(0).normal(size=(200, 6)) * np.arange(1, 7)


def test_pca_is_scikit_learns():
    ours = features.pca(X, 3)
    theirs = PCA(3).fit_transform(X)
    # The sign of a direction is arbitrary.
    np.testing.assert_allclose(ours(X).abs().numpy(), np.abs(theirs), atol=1e-9)
    assert ours.name == "pca(3)"
    with pytest.raises(InputError, match="k must lie between 1 and 6"):
        features.pca(X, 7)


def test_identity_flattens():
    images = np.random.default_rng(0).random((5, 2, 3, 4))
    assert features.identity()(images).shape == (5, 24)


def test_random_networks_repeat_by_seed():
    images = np.random.default_rng(0).random((20, 8, 8))
    a, b, c = (features.random_network(images, 16, seed)(images) for seed in (0, 0, 1))
    assert a.shape == (20, 16)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_the_name_of_a_classifier_states_its_accuracy():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=300)
    x = rng.normal(size=(300, 3)) + 6 * labels[:, None]
    made, model = features.classifier(x, labels, steps=60)
    assert made.name == "classifier(2 classes, accuracy 1.000)"
    assert made(x).shape == (300, 64)
    probabilities = model.probabilities(torch.as_tensor(x))
    assert float((probabilities.argmax(1).numpy() == labels).mean()) > 0.99


def test_modules_and_functions():
    linear = nn.Linear(6, 2)
    made = features.resolve(linear)
    assert made.name == "Linear"
    torch.testing.assert_close(made(X), linear(torch.as_tensor(X)).detach())

    def double(x):
        return 2 * x

    assert features.resolve(double).name == "double"
    assert features.resolve(None).name == "identity"
    assert features.resolve(made) is made
    a = frechet_distance(X, X + 1, features=features.resolve(double))
    assert a.value == pytest.approx(4 * 6)


def test_onnx_files(tmp_path):
    import onnx

    helper = onnx.helper
    kind = onnx.TensorProto.FLOAT
    node = helper.make_node("Mul", ["x", "two"], ["y"])
    graph = helper.make_graph(
        [node],
        "double",
        [helper.make_tensor_value_info("x", kind, [None, 6])],
        [helper.make_tensor_value_info("y", kind, [None, 6])],
        [helper.make_tensor("two", kind, [1], [2.0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "double.onnx")
    made = features.onnx(tmp_path / "double.onnx")
    assert made.name == "onnx(double.onnx)"
    np.testing.assert_allclose(made(X).numpy(), 2 * X, rtol=1e-6)
    (tmp_path / "no.onnx").write_text("no")
    with pytest.raises(InputError, match="must be an ONNX model"):
        features.onnx(tmp_path / "no.onnx")


def test_features_that_lose_rows_raise():
    with pytest.raises(InputError, match="features wrong must give one output per row"):
        Features("wrong", lambda x: x[:1])(X)
