"""A saved PixelCNN can be sampled, though the size of its images is not a part of the model."""

import pytest
import torch

import allometry as al
from allometry.study.common_measures import NAMES, measure_runs
from allometry.study.sample_generation import choose, draw
from allometry.train import checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pixels")
    digits = al.targets.Images.digits()
    study = al.study.Study(digits, [al.study.recipes.pixelcnn], [300], tokens=[256], seeds=1)
    study.run(folder, executor=al.study.local(1))
    return folder, digits


def test_a_saved_pixelcnn_draws_images_of_its_size(folder):
    chosen = choose(folder[0])
    drawn = draw(chosen, 5)
    assert drawn.values.shape == (5, 1, 8, 8)
    assert drawn.values.min() >= 0
    assert drawn.values.max() <= 16


def test_a_pixelcnn_has_the_common_measures(folder):
    (run,) = measure_runs(*folder)
    assert set(run.measures) == set(NAMES)


def test_a_file_that_does_not_say_the_size_is_refused_or_told(folder, tmp_path):
    tensors, about = checkpoint.read_weights(choose(folder[0]).path)
    del about["shape"]
    old = tmp_path / "old.safetensors"
    from safetensors.torch import save_file

    save_file({k: torch.as_tensor(v).contiguous() for k, v in tensors.items()}, old, about)
    with pytest.raises(al.InputError, match="must say the size of its images"):
        draw(choose(old), 2)
    assert draw(choose(old), 2, shape=(1, 8, 8)).values.shape == (2, 1, 8, 8)
