"""Time, money, energy and memory by hand calculation."""

import pytest

import allometry as al
from allometry.laws import hardware, memory

H100 = 989e12  # NVIDIA H100 SXM, dense bf16


def test_conversions_by_hand():
    made = hardware.parse("64xH100", mfu=0.4, price=2.5)
    assert made.flops_per_second == pytest.approx(64 * 0.4 * H100, rel=1e-15)
    # 64 x 0.4 x 989e12 x 12 x 86400 FLOPs in twelve days
    assert made.compute_in(days=12) == pytest.approx(2.625011712e22, rel=1e-12)
    # 12 days of 64 cards are 18432 card-hours; at 2.5 they cost 46080; at 700 W 12902.4 kWh
    budget = made.compute_in(days=12)
    assert made.hours(budget) == pytest.approx(288, rel=1e-12)
    assert made.accelerator_hours(budget) == pytest.approx(18432, rel=1e-12)
    assert made.cost(budget) == pytest.approx(46080, rel=1e-12)
    assert made.energy(budget) == pytest.approx(12902.4, rel=1e-12)
    assert made.energy(budget, pue=1.25) == pytest.approx(16128, rel=1e-12)
    assert made.compute_for(46080) == pytest.approx(budget, rel=1e-12)
    assert made.compute_in(hours=288) == made.compute_in(days=12)


def test_published_trainings():
    """Llama 3 405B: 3.8e25 FLOPs in 30.84M H100-hours; the paper reports MFU 0.38 to 0.43."""
    made = hardware.parse("16384xH100", mfu=0.4)
    assert made.accelerator_hours(3.8e25) == pytest.approx(30.84e6, rel=0.15)
    # Llama 2 70B: 6 x 70e9 x 2e12 FLOPs took 1 720 320 A100-hours, so MFU is 0.43.
    used = 6 * 70e9 * 2e12 / (1_720_320 * 3600 * 312e12)
    assert hardware.parse("A100", mfu=used).accelerator_hours(8.4e23) == pytest.approx(1_720_320)


@pytest.mark.parametrize(
    ("text", "count", "name"),
    [
        ("64xH100", 64, "H100"),
        ("8 x a100-40gb", 8, "A100-40GB"),
        ("8*A100", 8, "A100"),
        ("h200", 1, "H200"),
        ("4090", 1, "RTX-4090"),
        ("2x4090", 2, "RTX-4090"),
        ("256 TPU v5p", 256, "TPU-v5p"),
        ("NVIDIA H100 PCIe", 1, "H100-PCIe"),
    ],
)
def test_hardware_is_parsed(text, count, name):
    made = hardware.parse(text)
    assert (made.count, made.accelerator.name) == (count, name)


@pytest.mark.parametrize("text", ["", "x", "64xZ9000", "0xH100", "-3xH100", "64x", "1e9xH100"])
def test_wrong_hardware_is_refused(text):
    with pytest.raises(al.InputError, match="must"):
        hardware.parse(text)


@pytest.mark.parametrize(("key", "value"), [("mfu", 0.0), ("mfu", 1.1), ("price", -1.0)])
def test_wrong_settings_are_refused(key, value):
    with pytest.raises(al.InputError, match=f"{key} must"):
        hardware.parse("H100", **{key: value})


def test_money_without_a_price_is_refused():
    with pytest.raises(al.InputError, match="must have a price"):
        hardware.parse("H100").compute_for(100.0)


@pytest.mark.parametrize(
    ("text", "money"),
    [
        ("2.5/h", (2.5, "$")),
        ("$2.50 per hour", (2.5, "$")),
        ("€50K", (50_000, "€")),
        ("1.2M EUR", (1.2e6, "€")),
        ("3 CHF/h", (3, "CHF ")),
        ("2.5/gpu-hour", (2.5, "$")),
        ("100_000", (100_000, "$")),
    ],
)
def test_money_is_parsed(text, money):
    assert hardware.parse_money(text) == money


@pytest.mark.parametrize("text", ["", "free", "-2", "0", "2.5/day", "1e400"])
def test_wrong_money_is_refused(text):
    with pytest.raises(al.InputError, match="must be a positive number"):
        hardware.parse_money(text)


def test_every_accelerator_has_a_source_and_plausible_figures():
    every = set(hardware.accelerators().values())
    assert len(every) >= 30
    for made in every:
        assert made.source
        assert 5e13 < made.peak_flops < 1e16
        assert made.memory is not None
        assert 1e10 < made.memory < 5e11
        assert made.power is None or 50 < made.power < 2000


def test_accelerators_of_the_users_own(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('[H100]\npeak_flops = 1e15\n["my-card"]\npeak_flops = 2e14\nmemory_gb = 24\n')
    table = hardware.accelerators(path)
    assert hardware.parse("H100", table=table).accelerator.peak_flops == 1e15
    made = hardware.parse("4xmy-card", table=table)
    assert made.energy(1e18) is None
    assert made.accelerator.memory == 24e9
    for text in ("[a]\nmemory_gb = 1\n", "[a]\npeak_flops = -1\n", "a = 1\n", "[a"):
        bad = tmp_path / f"{len(text)}.toml"
        bad.write_text(text)
        with pytest.raises(al.InputError, match="must"):
            hardware.accelerators(bad)


def test_memory_by_hand():
    made = memory.training_memory(7e9, batch_tokens=4096, accelerators=64, width=4096, depth=32)
    assert (made.weights, made.gradients, made.optimiser) == (14e9, 14e9, 84e9)
    # 34 bytes x 4096 tokens x 4096 wide x 32 layers = 18.3 GB on each accelerator
    assert made.activations == 64 * 18_253_611_008
    assert made.per_accelerator == pytest.approx(112e9 / 64 + 18_253_611_008)
    full = memory.training_memory(7e9, width=4096, depth=32, recompute="full")
    assert full.activations == 2 * 4096 * 4096 * 32


def test_memory_of_published_models():
    # ZeRO, section 3.1: 1.5B parameters need 24 GB of model states.
    made = memory.training_memory(1.5e9)
    assert made.weights + made.gradients + made.optimiser == 24e9
    # Llama 7B: 4096 wide, 32 layers. Llama 65B: 8192 wide, 80 layers.
    assert memory.shape(6.7e9) == pytest.approx((4096, 32), rel=0.05)
    assert memory.shape(65e9) == pytest.approx((8192, 80), rel=0.15)


def test_inference():
    assert memory.inference_compute(70e9, 1e12) == 1.4e23
