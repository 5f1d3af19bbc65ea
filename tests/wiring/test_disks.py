import pytest

from hexcloud import wiring
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.run import RunSpec
from hexcloud.wiring.disks import require_disks


def test_a_model_whose_checkpoints_no_disk_of_the_cloud_holds_is_refused_with_the_mend() -> None:
    with pytest.raises(ConfigError, match=r"a trainer node of Llama-3.1-405B keeps up to \d+ GiB .* 16384 GiB on aws"):
        wiring.snapshot_input(RunSpec(model="Llama-3.1-405B", cloud=("aws",)))


def test_one_cloud_with_such_disks_is_enough_and_so_is_one_of_which_nobody_knows() -> None:
    large = wiring.workload_of(RunSpec(model="Llama-3.1-405B"))
    for clouds in (("aws", "gcp"), ("aws", "lambda"), ()):
        require_disks(large, clouds)
    require_disks(wiring.workload_of(RunSpec(model="Qwen2.5-7B")), ("aws",))
