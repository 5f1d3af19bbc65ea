from pathlib import Path

import pytest

from hexcloud import wiring
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.run import RunSpec
from hexcloud.wiring.weights_stores import prove_weights_stores, require_weights_stores

REGION = "aws/us-east-1"


def test_a_store_in_a_region_of_the_market_is_taken(tmp_path: Path) -> None:
    spec = RunSpec(weights_stores={REGION: f"file://{tmp_path}/store"})
    wiring.run_input(spec)
    prove_weights_stores(spec)
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()], "the proof leaves nothing"


@pytest.mark.parametrize(
    ("stores", "words"),
    [
        (
            {"aws/us-esat-1": "s3://bucket/x"},
            "weights_stores: aws/us-esat-1 is no region .* did you mean aws/us-",
        ),
        ({REGION: "bucket/x"}, f"weights_stores: {REGION}: 'bucket/x': a store is a URL"),
        ({REGION: "s3:///x"}, f"weights_stores: {REGION}: s3:///x names no bucket"),
    ],
)
def test_another_is_refused_with_its_field_and_what_to_do(stores: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        wiring.run_input(RunSpec(weights_stores=stores))


def test_machines_that_are_rented_have_no_folder_in_common(tmp_path: Path) -> None:
    market = wiring.run_input(RunSpec()).market
    spec = RunSpec(provider="skypilot", weights_stores={REGION: f"file://{tmp_path}"})
    with pytest.raises(ConfigError, match="folder of one computer; name a bucket in aws/us-east-1"):
        require_weights_stores(spec, market)


def test_a_store_that_cannot_be_written_is_found_before_anything_is_rented(tmp_path: Path) -> None:
    (tmp_path / "in-the-way").touch()
    with pytest.raises(ConfigError, match=f"weights_stores: {REGION}: nothing was rented"):
        prove_weights_stores(RunSpec(weights_stores={REGION: f"file://{tmp_path}/in-the-way"}))
