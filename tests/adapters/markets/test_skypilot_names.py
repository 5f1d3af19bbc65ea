"""GPU names: what SkyPilot's mean, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.adapters.files import load_gpu_names, load_gpus
from hexcloud.adapters.markets.skypilot_names import MAX_INFO_CHARS, GpuInfo, GpuNames, Listed, gpu_info
from hexcloud.adapters.markets.snapshot import SnapshotMarket

NAMES = GpuNames(load_gpu_names())


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", GpuInfo()),
        ("H100", GpuInfo("H100")),
        ("{'Gpus': [{'Name': 'T4', 'Count': 1.0, 'MemoryInfo': {'SizeInMiB': 16384}}]}", GpuInfo("T4", 16)),
        ('{"Gpus": [{"Name": "L4", "MemoryInfo": {"SizeInMiB": 24576}}], "Total": null}', GpuInfo("L4", 24)),
        ("[{'Name': 'A10', 'MemoryInfo': {'SizeInMiB': '24'}}]", GpuInfo("A10", 24)),
        ("{'Gpus': {'Name': 'A10'}}", GpuInfo("A10")),
        ("{'Gpus': [{'MemoryInfo': {'SizeInMiB': 40960}}]}", GpuInfo("", 40)),
        ("{'Gpus': []}", GpuInfo()),
        ("{'Gpus': [7], 'MemoryInfo': 3}", GpuInfo()),
        ("{'Gpus': [{'Name': 3, 'MemoryInfo': {'SizeInMiB': [1]}}]}", GpuInfo()),
        ("{'Gpus'", GpuInfo()),
        ("{" * 900, GpuInfo()),
        ("[" * 3000, GpuInfo()),
        ("{'a': " + "-" * 3000 + "1}", GpuInfo()),
        ("{'Gpus': [{'Name': 'T4'}]}" + " " * MAX_INFO_CHARS + "x", GpuInfo()),
    ],
)
def test_gpu_info_is_read_in_every_form(text: str, read: GpuInfo) -> None:
    assert gpu_info(text) == read


def test_gpu_info_is_never_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    mark = tmp_path_factory.getbasetemp() / "was-run"
    assert gpu_info(f"{{'Gpus': [open({str(mark)!r}, 'w')]}}") == GpuInfo()
    assert not mark.exists()


@given(st.text(max_size=300).map(lambda text: "{" + text) | st.text(max_size=300))
def test_no_text_breaks_gpu_info(text: str) -> None:
    assert isinstance(gpu_info(text), GpuInfo)


@pytest.mark.parametrize(
    ("cloud", "instance_type", "accelerator", "info", "ours"),
    [
        ("aws", "p4d.24xlarge", "A100", GpuInfo("A100", 40), "A100-40GB"),
        ("aws", "p4de.24xlarge", "A100-80GB", GpuInfo(), "A100-80GB"),
        ("gcp", "a2-ultragpu-8g", "A100-80GB", GpuInfo("", 80), "A100-80GB"),
        ("gcp", "a3-megagpu-8g", "H100-MEGA", GpuInfo(), "H100"),
        ("azure", "Standard_ND96asr_v4", "A100", GpuInfo("A100"), "A100-40GB"),
        ("azure", "Standard_NC24ads_A100_v4", "A100-80GB", GpuInfo("A100-80GB"), "A100-80GB-PCIe"),
        ("azure", "Standard_ND96isr_H100_v5", "H100", GpuInfo("H100"), "H100"),
        ("azure", "Standard_NC40ads_H100_v5", "H100", GpuInfo("H100"), "H100-NVL"),
        ("lambda", "gpu_8x_a100", "A100", GpuInfo("A100", 40), "A100-40GB"),
        ("lambda", "gpu_2x_a100", "A100", GpuInfo("A100", 40), "A100-40GB-PCIe"),
        ("lambda", "gpu_1x_a100_sxm4", "A100", GpuInfo("A100", 40), "A100-40GB"),
        ("lambda", "gpu_1x_h100_pcie", "H100", GpuInfo("H100", 80), "H100-PCIe"),
        ("lambda", "gpu_8x_h100_sxm5", "H100", GpuInfo("H100", 80), "H100"),
        ("runpod", "1x_H100_SECURE", "H100", GpuInfo("H100"), "H100-PCIe"),
        ("runpod", "1x_H100-SXM_SECURE", "H100-SXM", GpuInfo("H100-SXM"), "H100"),
        ("runpod", "1x_H100-NVL_SECURE", "H100-NVL", GpuInfo(), "H100-NVL"),
        ("runpod", "1x_A100-80GB_SECURE", "A100-80GB", GpuInfo(), "A100-80GB-PCIe"),
        ("runpod", "1x_A100-80GB-SXM_SECURE", "A100-80GB-SXM", GpuInfo(), "A100-80GB"),
        ("runpod", "1x_RTXA6000_SECURE", "RTXA6000", GpuInfo(), "A6000"),
        ("scaleway", "H100-1-80G", "H100", GpuInfo("NVIDIA H100 PCIe", 79.6), "H100-PCIe"),
        ("oci", "BM.GPU4.8", "A100", GpuInfo("A100", 40), "A100-40GB"),
        ("nobody", "big", "H100", GpuInfo(), "H100-PCIe"),
        ("nobody", "big", "A100", GpuInfo("A100", 80), "A100-80GB-PCIe"),
        ("nobody", "big", "A100", GpuInfo("A100", 40), "A100-40GB-PCIe"),
        ("aws", "p3dn.24xlarge", "V100", GpuInfo("V100", 32), "V100-32GB"),
        ("verda", "1RTX6000ADA.10V", "RTX-6000-Ada", GpuInfo(), "RTX6000-Ada"),
        ("lambda", "gpu_1x_rtx6000", "RTX6000", GpuInfo("RTX6000", 24), "RTX6000"),
        ("aws", "inf2.48xlarge", "Inferentia", GpuInfo(), "Inferentia"),
        ("gcp", "tpu-v4-8", "tpu-v4-8", GpuInfo("tpu-v4-8"), "tpu-v4-8"),
    ],
)
def test_a_name_means_one_build_of_a_gpu(
    cloud: str, instance_type: str, accelerator: str, info: GpuInfo, ours: str
) -> None:
    assert NAMES.ours(Listed(cloud, instance_type, accelerator, info)) == ours


def test_a_slice_of_a_gpu_is_counted_as_one() -> None:
    assert NAMES.count("azure", "Standard_NV6ads_A10_v5", 1.0) == pytest.approx(1 / 6, abs=1e-3)
    assert NAMES.count("azure", "Standard_NV36ads_A10_v5", 1.0) == 1.0


def test_every_gpu_that_a_rule_names_is_ours_but_the_one_that_nobody_has_facts_of() -> None:
    named = {rule.gpu for rule in load_gpu_names().rules} | {name.gpu for name in load_gpu_names().back}
    assert named - set(load_gpus()) == {"H200-NVL"}


def test_every_bundled_offer_keeps_its_gpu_on_the_way_to_skypilot_and_back() -> None:
    market = SnapshotMarket().market(0.0)
    for offer in market.offers:
        accelerator = NAMES.skypilot(offer.cloud, offer.instance_type, offer.gpu)
        info = GpuInfo(accelerator, market.gpus[offer.gpu].hbm_gib)
        assert NAMES.ours(Listed(offer.cloud, offer.instance_type, accelerator, info)) == offer.gpu, offer.id
