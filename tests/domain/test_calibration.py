"""A GPU nobody measured gets the default row."""

from hexcloud.domain.calibration import Calibration, Efficiency


def test_unknown_gpu_falls_back_to_the_default_row() -> None:
    default = Efficiency(gpu="*", bandwidth=0.7, compute=0.5, mfu=0.35, source="made up")
    h100 = default.model_copy(update={"gpu": "H100-SXM", "mfu": 0.4})
    calibration = Calibration(efficiencies=(default, h100), source="made up")
    assert calibration.of("H100-SXM") is h100
    assert calibration.of("never heard of") is default
