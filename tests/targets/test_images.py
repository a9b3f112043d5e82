"""Images and tables: splits, values, refusals."""

import numpy as np
import pytest
import torch
from PIL import Image

from allometry import InputError
from allometry.targets import Images, NumericTable


def _junk(path):
    path.write_text("junk")
    return str(path)


def test_digits_are_split_without_overlap_or_loss():
    digits = Images.digits()
    assert [len(digits.split(s)) for s in ("train", "validation", "test")] == [1437, 180, 180]
    assert digits.shape == (1, 8, 8)
    assert digits.train.max() == 16
    assert torch.bincount(torch.cat(list(digits.labels.values()))).sum() == 1797
    again = digits.spec()
    assert again.fingerprint == digits.fingerprint
    assert torch.equal(again.test, digits.test)


def test_the_histogram_of_digits_is_the_known_one():
    # 2.428 over another split of the same images: splits of 180 differ by a few hundredths.
    values = [Images.digits(seed=s).histogram_bits() for s in range(6)]
    assert np.mean(values) == pytest.approx(2.428, abs=5 * np.std(values) / 6**0.5 + 0.005)


def test_epochs_show_every_image_once():
    digits = Images.digits()
    rows = torch.cat([digits.batch(s, size=1437 // 3, seed=4) for s in range(3)])
    assert torch.equal(
        rows.flatten(1).sum(1).sort().values, digits.train.flatten(1).sum(1).sort().values
    )


def test_arrays_and_folders(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.integers(0, 4, size=(20, 6, 6, 3)))
    made = Images.array(str(tmp_path / "a.npy"))
    assert made.shape == (3, 6, 6)
    assert made.levels == 4
    assert made.spec().fingerprint == made.fingerprint
    for i in range(10):
        colours = rng.integers(0, 256, size=(9, 12, 3), dtype=np.uint8)
        Image.fromarray(colours).save(tmp_path / f"{i}.png")
    made = Images.folder(str(tmp_path), size=4, levels=8)
    assert made.shape == (3, 4, 4)
    assert made.train.max() < 8
    assert Images.folder(str(tmp_path), size=4, grey=True).shape == (1, 4, 4)


def test_a_table_is_standardised_by_its_training_rows(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal([5, -2], [3, 0.1], size=(1000, 2))
    lines = ["a,b,name", *(f"{a},{b},z" for a, b in x), "1,,z"]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    table = NumericTable(str(tmp_path / "t.csv"))
    assert table.columns == ["a", "b"]
    assert table.dropped == 1
    torch.testing.assert_close(table.train.mean(0), torch.zeros(2), atol=1e-9, rtol=0)
    assert table.log_scale == pytest.approx(np.log(0.3), abs=0.1)
    assert table.spec().fingerprint == table.fingerprint


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: Images(np.full((5, 2, 2), 0.5)), "whole numbers"),
        (lambda p: Images(np.zeros((5, 2))), r"be \(n, h, w\)"),
        (lambda p: Images(np.full((9, 2, 2), 5), levels=3), "at least 6"),
        (lambda p: Images(np.zeros((3, 2, 2), dtype=int)), "no split empty"),
        (lambda p: Images.folder(str(p)), "hold images"),
        (lambda p: Images(np.full((5, 2, 2), np.nan)), "whole numbers from 0; got nan"),
        (lambda p: Images(np.array([[[0, -3]]] * 5)), "whole numbers from 0; got -3"),
        (lambda p: Images(np.full((5, 2, 2), "a")), "must be numbers"),
        (lambda p: Images.array(str(p / "none.npy")), "no such file"),
        (lambda p: Images.array(_junk(p / "junk.npy")), "be a whole array file"),
        (lambda p: Images(np.zeros((50, 2, 2), dtype=int)).spec, "come from a file"),
    ],
)
def test_invalid_input_is_refused(make, message, tmp_path):
    with pytest.raises((InputError, OSError), match=message):
        make(tmp_path)


def test_invalid_tables_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,x\n" * 40)
    with pytest.raises(InputError, match="vary"):
        NumericTable(str(path))
    with pytest.raises(InputError, match="numeric columns"):
        NumericTable(str(path), columns=["b"])
