import struct

import pytest

from hexcloud.cli.chart import Chart, Line, png

pytest.importorskip("matplotlib")
PLAN = Line("the plan", ((5e3, 5.0), (10e3, 9.0), (20e3, 20.0)))


def size_of(picture: bytes) -> tuple[int, int]:
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


def test_a_chart_is_a_png_of_a_fixed_size() -> None:
    assert size_of(png(Chart("m", (PLAN,), (10e3, 9.0)))) == (1200, 750)


def test_more_buyers_than_colours_and_buyers_without_a_price_are_drawn() -> None:
    rivals = tuple(Line(f"buyer {index}", ((5e3, 6.0 + index),)) for index in range(12))
    chart = Chart("m", (PLAN, Line("unable", ()), *rivals), (10e3, 9.0), cap_usd_per_hour=15.0)
    assert size_of(png(chart)) == (1200, 750)


def test_a_line_changes_the_picture_and_the_same_chart_does_not() -> None:
    chart = Chart("m", (PLAN,), (10e3, 9.0))
    assert png(chart) == png(chart)
    assert png(chart) != png(Chart("m", (PLAN, Line("rival", ((5e3, 6.0), (10e3, 12.0)))), (10e3, 9.0)))
