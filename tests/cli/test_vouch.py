"""What only the user can know about a price."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hexcloud.domain.offer import OfferId
from hexcloud.domain.row import Part

Cli = Callable[..., Any]
BAD_RATES = [("EURO", "1"), ("USD", "1"), ("EUR", "0"), ("ÄÖÜ", "1")]
ODD = "neo/eu/-/odd6/on_demand"
HEADER = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n"


@pytest.fixture
def refresh(cli: Cli, tmp_path: Path) -> Callable[..., Any]:
    """Read a list that holds a machine with six GPUs, at a price."""
    (tmp_path / "sky" / "neo").mkdir(parents=True)

    def read(price: float = 21.0, day: int = 1) -> Any:
        odd = f"odd6,H100-SXM,6,192,2048,{price},eu,,\n"
        (tmp_path / "sky" / "neo" / "vms.csv").write_text(HEADER + "big8,H100-SXM,8,192,2048,28.0,eu,,\n" + odd)
        return cli("catalog", "refresh", "--from", str(tmp_path / "sky"), "--as-of", f"2026-07-{day:02}")

    return read


def test_the_users_word_frees_an_offer_from_the_next_refresh_on(cli: Cli, refresh: Callable[[], Any]) -> None:
    refresh()
    assert cli("catalog", "show", ODD).code == 2
    said = cli("catalog", "trust", ODD, "--note", "asked their sales")
    assert said.code == 0 and "is trusted at 21 USD/h of skypilot (6 GPUs" in said.err
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


def test_a_word_for_one_price_frees_no_other(cli: Cli, refresh: Callable[..., Any]) -> None:
    refresh()
    assert cli("catalog", "trust", ODD).code == 0
    refresh(price=6.0)
    assert cli("catalog", "show", ODD).code == 2


def test_a_rule_that_does_not_exist_or_does_not_hold_it_back_is_wrong_input(
    cli: Cli, refresh: Callable[..., Any]
) -> None:
    refresh()
    said = cli("catalog", "trust", ODD, "--rule", "imposible_count")
    assert said.code == 2 and "did you mean impossible_count" in said.err
    said = cli("catalog", "trust", ODD, "--rule", "step")
    assert said.code == 2 and "it waits at skypilot under impossible_count (21 USD/h)" in said.err
    assert cli("catalog", "trust", ODD, "--rule", "*").code == 2
    assert cli("catalog", "trust", ODD, "--source", "tracker").code == 2
    refresh()
    assert cli("catalog", "show", ODD).code == 2, "nobody has said anything that holds"
    assert cli("catalog", "trust", ODD, "--rule", "impossible_count", "--source", "skypilot").code == 0


def test_what_waits_at_two_sources_is_trusted_at_the_one_that_is_named(cli: Cli, refresh: Callable[..., Any]) -> None:
    from hexcloud import wiring

    refresh()
    prices = wiring.open_prices()
    (belief,) = [one for one in prices.doubts() if one.row.id == ODD]
    copy = belief.model_copy(update={"row": belief.row.model_copy(update={"source": "tracker", "price": 0.02})})
    at = datetime(2026, 7, 1, tzinfo=UTC)
    prices.save_part(Part(source="tracker", cloud="neo", region="eu", as_of=at, rows=(copy.row,)), (copy,))
    said = cli("catalog", "trust", ODD)
    assert said.code == 2 and "at tracker under impossible_count (0.02 USD/h)" in said.err
    assert cli("catalog", "trust", ODD, "--source", "skypilot").code == 0
    (word,) = prices.vouchers()
    assert (word.source, word.rule, word.list_price, word.currency) == ("skypilot", "impossible_count", 21.0, "USD")


def test_a_word_taken_back_drops_the_price_that_stood_on_it_and_holds_it_back_again(
    cli: Cli, refresh: Callable[..., Any]
) -> None:
    from hexcloud import wiring

    refresh()
    assert cli("catalog", "distrust", ODD).code == 2, "nobody has said anything"
    cli("catalog", "trust", ODD)
    refresh(day=2)
    assert cli("catalog", "show", ODD).code == 0
    said = cli("catalog", "distrust", ODD, "--note", "it was a slip")
    assert said.code == 0 and "is trusted no more; 1 price dropped" in said.err
    assert cli("catalog", "show", ODD).code == 2
    assert cli("catalog", "show", "neo/eu/-/big8/on_demand").code == 0, "nothing else goes with it"
    refresh(day=3)
    assert cli("catalog", "show", ODD).code == 2
    assert [change.usd_per_hour for change in wiring.open_prices().history(OfferId(ODD))] == [21.0, None]
    assert cli("catalog", "distrust", ODD).code == 2, "once is enough"
    assert cli("catalog", "trust", ODD).code == 0, "and it may be said again"
    refresh(day=4)
    assert cli("catalog", "show", ODD).code == 0


@pytest.mark.parametrize("usd", ["2.4", "0.5"])
def test_a_rate_far_from_the_catalogs_needs_force(cli: Cli, usd: str) -> None:
    from hexcloud import wiring

    said = cli("catalog", "rate", "EUR", usd)
    assert said.code == 2 and "is far from the catalog's 1." in said.err and "--force" in said.err
    assert wiring.open_prices().rates() == {}
    assert cli("catalog", "rate", "EUR", usd, "--force").code == 0
    assert wiring.rates()["EUR"] == float(usd)


def test_a_currency_that_the_catalog_does_not_know_may_have_any_rate(cli: Cli) -> None:
    assert cli("catalog", "rate", "XTS", "40000").code == 0


@pytest.mark.parametrize(("currency", "usd"), [*BAD_RATES, ("EUR", "inf"), ("EUR", "nan")])
def test_a_rate_is_of_a_currency_and_over_zero(cli: Cli, currency: str, usd: str) -> None:
    assert cli("catalog", "rate", currency, usd).code == 2


def test_a_rate_is_kept(cli: Cli) -> None:
    from hexcloud import wiring

    assert cli("catalog", "rate", "eur", "1.11").code == 0
    assert wiring.rates()["EUR"] == 1.11


def test_a_sum_that_lacks_a_part_is_freed_by_a_bill_only(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "sky" / "gcp").mkdir(parents=True)
    header = (
        "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice"
    )
    host = "a3-highgpu-8g,208,1872,,,,us-central1,us-central1-a,11.44,"
    (tmp_path / "sky" / "gcp" / "vms.csv").write_text(f"{header}\n{host}\n")
    cli("catalog", "refresh", "--from", str(tmp_path / "sky"), "--as-of", "2026-11-01")
    said = cli("catalog", "trust", "gcp/us-central1/us-central1-a/a3-highgpu-8g/on_demand")
    assert said.code == 2
    assert "only a bill for the whole machine can confirm such a sum" in said.err
