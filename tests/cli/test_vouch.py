"""What only the user can know about a price."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
ODD = "neo/eu/-/odd6/on_demand"
HEADER = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n"


@pytest.fixture
def refresh(cli: Cli, tmp_path: Path) -> Callable[[], Any]:
    """Read a list that holds a machine with six GPUs."""
    (tmp_path / "sky" / "neo").mkdir(parents=True)
    (tmp_path / "sky" / "neo" / "vms.csv").write_text(
        HEADER + "big8,H100-SXM,8,192,2048,28.0,eu,,\nodd6,H100-SXM,6,192,2048,21.0,eu,,\n"
    )
    return lambda: cli("catalog", "refresh", "--from", str(tmp_path / "sky"), "--as-of", "2026-07-01")


def test_the_users_word_frees_an_offer_from_the_next_refresh_on(cli: Cli, refresh: Callable[[], Any]) -> None:
    refresh()
    assert cli("catalog", "show", ODD).code == 2
    said = cli("catalog", "trust", ODD, "--note", "asked their sales")
    assert said.code == 0 and "is trusted (6 GPUs" in said.err
    refresh()
    assert cli("catalog", "show", ODD).code == 0


def test_a_bill_frees_an_offer_only_if_it_agrees_with_the_listing(cli: Cli, refresh: Callable[[], Any]) -> None:
    refresh()
    said = cli("catalog", "trust", ODD, "--bill", "40")
    assert said.code == 2 and "the bill says 40 USD/h and the listing 21" in said.err
    assert cli("catalog", "trust", ODD, "--bill", "21.5").code == 0


def test_an_offer_that_does_not_wait_is_wrong_input(cli: Cli, refresh: Callable[[], Any]) -> None:
    refresh()
    said = cli("catalog", "trust", "neo/eu/-/odd7/on_demand")
    assert said.code == 2 and "did you mean" in said.err


@pytest.mark.parametrize(("currency", "usd"), [("EURO", "1"), ("USD", "1"), ("EUR", "0")])
def test_a_rate_is_of_a_currency_and_over_zero(cli: Cli, currency: str, usd: str) -> None:
    assert cli("catalog", "rate", currency, usd).code == 2


def test_a_rate_is_kept(cli: Cli) -> None:
    from hexcloud import wiring

    assert cli("catalog", "rate", "eur", "1.11").code == 0
    assert wiring.rates()["EUR"] == 1.11
