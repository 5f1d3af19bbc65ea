"""What the gate makes of a price list: one outcome for every row, with its reason, before anything is planned."""

from hexcloud.appraise.gate import gate, offers_of
from hexcloud.appraise.known import Known
from hexcloud.domain.row import Row

SOUND = Row(
    cloud="neo",
    region="eu",
    instance_type="8xH100",
    tenure="on_demand",
    gpu="H100",
    gpu_count=8,
    vcpus=192,
    memory_gib=2048,
    network_gb_per_s=400,
    price=24.0,
    as_of="2026-11-01",
    source="a list",
)
LIES: dict[str, dict[str, object]] = {
    "a machine for nothing": {"price": 0.0},
    "eight GPUs counted as twelve": {"gpu_count": 12},
    "a host without its GPUs": {"price": 4.0, "missing": "8 x H100"},
    "spot dearer than on demand": {"tenure": "spot", "price": 30.0},
    "spot where nothing is for sale": {"tenure": "spot", "price": 2.4},
    "yuan in a column of dollars, declared": {"price": 170.0, "currency": "CNY"},
}


def main() -> None:
    """Judge each row beside the sound one, and say what remains for the planner."""
    known = Known(usual_usd_per_gpu_hour={"H100": 3.0})
    for name, changes in [("a sound row", {}), *LIES.items()]:
        row = SOUND.model_copy(update=changes and {**changes, "source": "another list"})
        (belief,) = (belief for belief in gate({SOUND, row}, known) if belief.row == row)
        offers = offers_of((belief,))
        stock = "no offer" if not offers else ("an offer" if offers[0].proven else "an offer, unproven: stock 0")
        print(f"{name:40} {belief.outcome.value:10} {belief.reason or 'believed':70} {stock}")


if __name__ == "__main__":
    main()
