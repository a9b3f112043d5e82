import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from allometry import InputError
from allometry.measure import (
    coverage_metric,
    frechet_distance,
    kid,
    mmd2,
    prdc,
    sample_inputs,
    ssim,
)

X = np.random.default_rng(0).normal(size=(50, 4))


@pytest.mark.parametrize("measure", [frechet_distance, mmd2, kid, prdc, coverage_metric])
def test_mismatched_dimensions_raise(measure):
    with pytest.raises(InputError, match=r"samples must have 4 features like real; got 3"):
        measure(X, X[:, :3])


@pytest.mark.parametrize("measure", [frechet_distance, mmd2, kid, prdc, coverage_metric])
def test_nan_raises(measure):
    bad = X.copy()
    bad[:2, 1] = np.nan
    with pytest.raises(InputError, match="samples must be finite; got 'NaN or infinity in 2 of"):
        measure(X, bad)


@pytest.mark.parametrize("measure", [frechet_distance, mmd2, kid, prdc, coverage_metric])
def test_empty_sets_raise(measure):
    with pytest.raises(InputError, match=r"samples must hold at least \d rows; got \(0, 4\)"):
        measure(X, X[:0])


def test_constant_sets_raise():
    flat = np.ones((50, 4))
    with pytest.raises(InputError, match="must vary; got '50 equal rows'"):
        prdc(flat, X)
    with pytest.raises(InputError, match="real and samples must vary"):
        mmd2(flat, flat)


def test_one_constant_feature_is_allowed():
    x = np.concatenate([X, np.ones((50, 1))], 1)
    for measure in (frechet_distance, mmd2, kid):
        assert np.isfinite(measure(x, x + 0.1).value)
        assert np.isfinite(measure(x, x + 0.1).se)


def test_fewer_rows_than_features_raise():
    with pytest.raises(InputError, match="real must have more rows than its 4 features; got '3"):
        frechet_distance(X[:3], X)


def test_images_of_different_sizes_raise():
    a, b = np.zeros((3, 8, 8)), np.zeros((3, 9, 8))
    with pytest.raises(InputError, match=r"samples must be images of shape \(1, 8, 8\)"):
        ssim(a, b, span=1)
    with pytest.raises(InputError, match="must be images"):
        ssim(X, X, span=1)


def test_labels():
    ranked = sample_inputs.class_labels(np.array([3, 7, 3, 9]), 4)
    assert ranked.tolist() == [0, 1, 0, 2]
    with pytest.raises(InputError, match="one entry for each of the 5 rows"):
        sample_inputs.class_labels(np.array([0, 1]), 5)
    with pytest.raises(InputError, match="whole numbers"):
        sample_inputs.class_labels(np.array([0.5, 1.0]), 2)
    with pytest.raises(InputError, match="at least 2 classes"):
        sample_inputs.class_labels(np.zeros(3), 3)


def test_float32_is_kept():
    assert sample_inputs.tensor(X.astype(np.float32), "x").dtype == torch.float32
    assert sample_inputs.tensor((X > 0).astype(np.uint8), "x").dtype == torch.float64
    a, b = sample_inputs.pair(X.astype(np.float32), X)
    assert a.dtype == b.dtype == torch.float64


def test_files(tmp_path):
    np.save(tmp_path / "a.npy", X)
    np.savez(tmp_path / "b.npz", other=X[:3], samples=X)
    np.savetxt(tmp_path / "c.csv", X, delimiter=",")
    np.savetxt(tmp_path / "d.csv", X, delimiter=",", header="a,b,c,d", comments="")
    save_file({"x": X}, tmp_path / "e.safetensors")
    save_file({"x": X}, tmp_path / "f.pt")
    for path in sorted(tmp_path.iterdir()):
        np.testing.assert_allclose(sample_inputs.load(path), X)
    assert len(sample_inputs.load(tmp_path / "b.npz", "other")) == 3


def test_files_that_are_refused(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    with pytest.raises(InputError, match="must hold plain numbers"):
        sample_inputs.load(tmp_path / "objects.npy")
    torch.save(torch.ones(2), tmp_path / "pickled.pt")
    with pytest.raises(InputError, match="pickled files are never read"):
        sample_inputs.load(tmp_path / "pickled.pt")
    with pytest.raises(InputError, match="must be a file that exists"):
        sample_inputs.load(tmp_path / "nowhere.npy")
    (tmp_path / "x.txt").write_text("1")
    with pytest.raises(InputError, match="must end in"):
        sample_inputs.load(tmp_path / "x.txt")
    np.savez(tmp_path / "two.npz", p=X, q=X)
    with pytest.raises(InputError, match=r"be one of \['p', 'q'\]"):
        sample_inputs.load(tmp_path / "two.npz")
    (tmp_path / "words.csv").write_text("a,b\n1,two\n")
    with pytest.raises(InputError, match="must hold plain numbers"):
        sample_inputs.load(tmp_path / "words.csv")
