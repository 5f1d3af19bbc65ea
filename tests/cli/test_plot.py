from pathlib import Path

import pytest

from hexcloud.cli.plot import draw_prices
from hexcloud.cli.tracks import Change, Track
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.offer import OfferId

DAY_S = 86400.0


def tracks(*zones: str) -> list[Track]:
    changes = (Change(0.0, 2.0), Change(DAY_S, None), Change(2 * DAY_S, 3.0))
    return [Track(OfferId(f"aws/us-west-2/{zone}/p5.48xlarge/spot"), "list", changes, 3 * DAY_S) for zone in zones]


def test_a_picture_is_written_with_a_line_and_a_name_per_zone(tmp_path: Path) -> None:
    draw_prices(tracks("usw2-az1", "usw2-az2"), tmp_path / "two.svg", 0.0, 3 * DAY_S)
    draw_prices(tracks("usw2-az1"), tmp_path / "one.png", 0.0, 3 * DAY_S)
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "two.svg").read_text()
    assert "aws usw2-az1" in drawn and "aws usw2-az2" in drawn


def test_nothing_to_draw_is_an_empty_picture(tmp_path: Path) -> None:
    draw_prices([], tmp_path / "none.png", 0.0, DAY_S)
    assert (tmp_path / "none.png").stat().st_size > 1000


def test_many_zones_are_drawn_without_names(tmp_path: Path) -> None:
    draw_prices(tracks(*(f"az{number}" for number in range(30))), tmp_path / "many.svg", 0.0, 3 * DAY_S)
    assert "aws az1" not in (tmp_path / "many.svg").read_text()


@pytest.mark.parametrize(("name", "said"), [("a.txt", "must end in .png"), ("gone/a.png", "cannot be written")])
def test_a_file_that_cannot_be_is_named(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        draw_prices(tracks("a"), tmp_path / name, 0.0, DAY_S)
