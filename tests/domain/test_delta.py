import pytest
from pydantic import ValidationError

from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.messages import WeightsManifest


def told(**changes: object) -> WeightsDelta:
    base, result = (WeightsManifest(epoch=1, version=version, sha256="", size=9) for version in (3, 4))
    facts: dict[str, object] = {"base": base, "result": result, "sha256": "", "size": 5, "chunk_bytes": 4}
    return WeightsDelta.model_validate({**facts, "chunks": ("", ""), **changes})


def test_a_delta_leads_forward_within_an_epoch() -> None:
    assert told().result.version == 4
    for epoch, version in ((1, 3), (1, 2), (2, 9)):
        with pytest.raises(ValidationError, match="later version of the same epoch"):
            told(result=WeightsManifest(epoch=epoch, version=version, sha256="", size=9))


@pytest.mark.parametrize("changes", [{"chunks": ("",)}, {"size": 9}, {"chunk_bytes": 0}, {"chunk_bytes": -1}])
def test_chunks_cover_the_file(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="chunks of"):
        told(**changes)
