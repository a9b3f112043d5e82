"""PixelCNNs through the same study, journal and report as flows."""

import math

import numpy as np
import pytest
import torch

from allometry import InputError, report
from allometry.models import PixelCNN
from allometry.study import Study
from allometry.study.density_studies import density_study
from allometry.study.recipes import baseline, pixelcnn
from allometry.study.recipes.pixel_runs import PixelRun, images_of, in_line, loss_on, nats
from allometry.study.request import default_dtype
from allometry.targets import Images, Points, points
from allometry.train import BatchedTrainer, count_parameters


def test_colours_stand_beside_one_another_and_come_back():
    images = torch.arange(2 * 3 * 2 * 4).reshape(2, 3, 2, 4)
    line = in_line(images)
    assert line.shape == (2, 2, 12)
    assert line[0, 0, :3].tolist() == images[0, :, 0, 0].tolist()
    back = line.unflatten(2, (4, 3)).permute(0, 3, 1, 2)
    assert torch.equal(back, images)
    drawn = images_of(PixelCNN(levels=3, width=2, depth=1, colours=3), (3, 2, 4), 5, seed=0)
    assert drawn.shape == (5, 3, 2, 4)


def test_the_loss_is_the_likelihood_of_the_split_in_bits():
    target = Images.digits()
    model = PixelCNN(levels=17, width=3, depth=1)
    found = loss_on(model, target, "test")
    test = target.split("test")
    with torch.no_grad():
        each = -model.log_prob(in_line(test)) / (64 * math.log(2))
        assert nats(model, in_line(test)).item() == pytest.approx(found.value * math.log(2))
    assert found.value == pytest.approx(each.mean().item())
    assert found.se == pytest.approx(each.std().item() / len(test) ** 0.5)


@pytest.mark.parametrize("N", [5e3, 5e4])
def test_sizes_are_what_was_asked(N):
    (spec,) = pixelcnn(Images.digits(), [N], tokens=[640], seeds=1)
    run = spec()
    assert isinstance(run, PixelRun)
    assert abs(math.log(run.budget().N / N)) < 0.15
    assert count_parameters(run.shape())[0] == run.budget().N
    assert run.budget().D == 640


def test_packed_pixels_end_where_they_end_alone():
    runs = [s() for s in pixelcnn(Images.digits(), [1500], tokens=[64 * 6], seeds=2)]
    with default_dtype(torch.float32):
        trainer = BatchedTrainer({str(r.seed): r.training() for r in runs})
        ends = {end.name: end.trained for end in trainer()}
        single = [run.training().alone() for run in runs]
    for run, alone in zip(runs, single, strict=True):
        assert ends[str(run.seed)].loss.value == pytest.approx(alone.loss.value, rel=1e-4)


def test_digits_are_learnt_studied_and_reported(tmp_path):
    target = Images.digits()
    study = Study(target, [pixelcnn, baseline], ladder=[4500], seeds=1, tokens=[64 * 5, 64 * 160])
    runs = study.run(tmp_path / "digits")
    frame = runs.frame()
    assert set(frame["status"]) == {"done"}, frame["error"].tolist()
    own = frame[frame["family"] == "pixelcnn"].sort_values("D")
    # Neighbours predict a pixel better than its position does.
    counted = frame[frame["family"] == "histogram"]["test_loss"].item()
    assert own["test_loss"].iloc[-1] < counted - 0.15
    assert own["test_loss"].iloc[-1] < own["test_loss"].iloc[0]
    assert {"energy_distance", "precision"} <= set(runs.measures())
    with np.load(next((tmp_path / "digits" / "pictures").glob("*.npz"))) as kept:
        assert kept["samples"].shape[1:] == (40, 1, 8, 8)
        assert kept["samples"].max() <= 16
    text = report.write(tmp_path / "report.html", runs).read_text()
    assert "Samples of the PixelCNN during training" in text
    assert "Nats per dimension" in text
    assert "Nats per image" in text


def test_only_images_have_pixels():
    with pytest.raises(InputError, match=r"pixelcnn\.target must be images"):
        density_study(Points(points.TwoMoons()), families=["pixelcnn"]).specs()
