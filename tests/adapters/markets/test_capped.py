import gzip
from pathlib import Path

import pytest

from hexcloud.adapters.markets import capped
from hexcloud.adapters.markets.capped import read_capped
from hexcloud.domain.errors import ConfigError


def test_gzip_is_told_by_its_bytes_and_not_by_the_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(gzip.compress(b"at,price\n"))
    (tmp_path / "b.csv.gz").write_bytes(b"at,price\n")
    assert read_capped(tmp_path / "a.csv") == read_capped(tmp_path / "b.csv.gz") == b"at,price\n"


def test_a_bomb_is_not_unfolded(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.csv.gz"
    with gzip.open(bomb, "wb", compresslevel=9) as file:
        for _ in range(capped.MAX_TEXT_BYTES // (1 << 20) + 2):
            file.write(bytes(1 << 20))
    assert bomb.stat().st_size < 1 << 20
    with pytest.raises(ConfigError, match="unpacks to over 256 MiB"):
        read_capped(bomb)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    huge = tmp_path / "huge.csv"
    with huge.open("wb") as file:
        file.truncate(capped.MAX_FILE_BYTES + 1)
    with pytest.raises(ConfigError, match="over 64 MiB"):
        read_capped(huge)


@pytest.mark.parametrize(("cut", "said"), [(-9, "cut off"), (12, "cut off"), (3, "cut off")])
def test_a_torn_download_says_so(tmp_path: Path, cut: int, said: str) -> None:
    torn = tmp_path / "torn.gz"
    torn.write_bytes(gzip.compress(b"at,price\n" * 1000)[:cut])
    with pytest.raises(ConfigError, match=said):
        read_capped(torn)


def test_a_damaged_file_says_so(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gz"
    packed = bytearray(gzip.compress(bytes(range(256)) * 50))
    packed[20:60] = bytes(40)
    damaged.write_bytes(bytes(packed))
    with pytest.raises(ConfigError, match="damaged"):
        read_capped(damaged)


@pytest.mark.parametrize("name", ["missing.csv", "."])
def test_what_is_no_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        read_capped(tmp_path / name)


def test_a_device_that_never_ends_is_no_file() -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        read_capped(Path("/dev/zero"))
