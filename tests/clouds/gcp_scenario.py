"""A small Google Cloud with list prices of 2026-07: two regions, machines of every kind, SKUs that must not match."""

from typing import Any

AMERICAS = ("us-central1",)
NETHERLANDS = ("europe-west4",)


def sku(
    name: str, description: str, price: float, group: str = "CPU", regions: tuple[str, ...] = AMERICAS, **more: Any
) -> dict[str, Any]:
    """One line of the price list; `more` may name usage, unit, currency, or tiers as (start, price)."""
    unit = more.get("unit", {"RAM": "GiBy.h", "LocalSSD": "GiBy.mo"}.get(group, "h"))
    rates = [
        {"startUsageAmount": start, "unitPrice": money(amount, more.get("currency", "USD"))}
        for start, amount in more.get("tiers", [(0, price)])
    ]
    return {
        "name": f"services/6F81-5844-456A/skus/{name}",
        "skuId": name,
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Storage" if group == "LocalSSD" else "Compute",
            "resourceGroup": group,
            "usageType": more.get("usage", "OnDemand"),
        },
        "serviceRegions": list(regions),
        "pricingInfo": [{"pricingExpression": {"usageUnit": unit, "displayQuantity": 1, "tieredRates": rates}}],
        "serviceProviderName": "Google",
    }


def money(amount: float, currency: str = "USD") -> dict[str, Any]:
    """An amount as the API spells it."""
    nanos = round(amount * 1e9)
    return {"currencyCode": currency, "units": str(nanos // 10**9), "nanos": nanos % 10**9}


def machine(name: str, vcpus: int, gib: float, gpu: str = "", count: int = 0, **more: Any) -> dict[str, Any]:
    """A machine type as the API spells it; `disks` bundled local disks."""
    built: dict[str, Any] = {
        "kind": "compute#machineType",
        "name": name,
        "guestCpus": vcpus,
        "memoryMb": int(gib * 1024),
    }
    if gpu:
        built["accelerators"] = [{"guestAcceleratorType": gpu, "guestAcceleratorCount": count}]
    if disks := more.pop("disks", 0):
        built["bundledLocalSsds"] = {"partitionCount": disks, "defaultInterface": "NVME"}
    return built | more


def accelerator(name: str, most: int) -> dict[str, Any]:
    return {"kind": "compute#acceleratorType", "name": name, "maximumCardsPerInstance": most}


G2 = machine("g2-standard-4", 4, 16, "nvidia-l4", 1)
A2 = machine("a2-highgpu-8g", 96, 680, "nvidia-tesla-a100", 8)
A2_ULTRA = machine("a2-ultragpu-1g", 12, 170, "nvidia-a100-80gb", 1, disks=1)
A3 = machine("a3-highgpu-8g", 208, 1872, "nvidia-h100-80gb", 8, disks=16)
A4 = machine("a4-highgpu-8g", 224, 3968, "nvidia-b200", 8, disks=32)
N1 = machine("n1-standard-8", 8, 30)
L4, T4 = accelerator("nvidia-l4", 8), accelerator("nvidia-tesla-t4", 4)
A100, A100_80 = accelerator("nvidia-tesla-a100", 16), accelerator("nvidia-a100-80gb", 8)
H100, B200 = accelerator("nvidia-h100-80gb", 8), accelerator("nvidia-b200", 8)

SPOT: dict[str, Any] = {"usage": "Preemptible"}
SKUS = [
    sku("G2-CORE", "G2 Instance Core running in Americas", 0.02498824),
    sku("G2-RAM", "G2 Instance Ram running in Americas", 0.00292706, "RAM"),
    sku("L4", "Nvidia L4 GPU running in Americas", 0.560040, "GPU"),
    sku("G2-CORE-SPOT", "Spot Preemptible G2 Instance Core running in Americas", 0.01, **SPOT),
    sku("G2-RAM-SPOT", "Spot Preemptible G2 Instance Ram running in Americas", 0.001, "RAM", **SPOT),
    sku(
        "L4-SPOT",
        "Nvidia L4 GPU attached to Spot Preemptible VMs running in Americas",
        0.224,
        "GPU",
        usage="Preemptible",
    ),
    sku("A2-CORE", "A2 Instance Core running in Americas", 0.031611),
    sku("A2-RAM", "A2 Instance Ram running in Americas", 0.004237, "RAM"),
    sku("A100", "Nvidia Tesla A100 GPU running in Americas", 2.933908, "GPU"),
    sku("A100-80", "Nvidia Tesla A100 80GB GPU running in Americas", 3.92808, "GPU"),
    sku("SSD", "SSD backed Local Storage", 0.08, "LocalSSD"),
    sku("N1-CORE", "N1 Predefined Instance Core running in Americas", 0.031611, "N1Standard"),
    sku("N1-RAM", "N1 Predefined Instance Ram running in Americas", 0.004237, "N1Standard", unit="GiBy.h"),
    sku("T4", "Nvidia Tesla T4 GPU running in Americas", 0.35, "GPU"),
    sku("B200-SPOT", "Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", 4.9542, "GPU"),
    sku("A3-CORE", "A3 Instance Core running in Netherlands", 0.029, regions=NETHERLANDS),
    sku("A3-RAM", "A3 Instance Ram running in Netherlands", 0.0025, "RAM", regions=NETHERLANDS),
    sku("SSD-NL", "SSD backed Local Storage in Netherlands", 0.088, "LocalSSD", regions=NETHERLANDS),
    # None of these is what a plain machine costs.
    sku("L4-1Y", "Commitment v1: Nvidia L4 GPU running in Americas for 1 Year", 0.35, "GPU", usage="Commit1Yr"),
    sku("L4-DWS", "Nvidia L4 GPU attached to DWS Defined Duration VMs running in Americas", 0.28, "GPU"),
    sku("A2-RESERVED", "Reserved A2 Core in Americas", 0.0),
    sku("N1-CUSTOM", "Custom Instance Core running in Americas", 0.033174),
    sku("H100-CALENDAR", "Reserved Nvidia H100 80GB GPU in Netherlands in Calendar Mode", 4.8, "GPU", NETHERLANDS),
    sku("T4-SOLE", "Nvidia Tesla T4 GPU attached to Sole Tenancy VMs running in Americas", 0.1, "GPU"),
    sku("EGRESS", "Network Internet Egress from Americas to Americas", 0.12, "PremiumInternetEgress", unit="GiBy"),
]


def small_cloud() -> dict[str, Any]:
    """The scenario: us-central1 has all but A3; europe-west4 lists A3 whose GPUs have no price."""
    return {
        "project": "demo",
        "page_size": 3,
        "quotas": [{"metric": "GPUS_ALL_REGIONS", "limit": 16.0, "usage": 4.0}, {"metric": "NETWORKS", "limit": 5.0}],
        "regions": {
            "us-central1": {
                "quotas": [
                    {"metric": "CPUS", "limit": 72.0, "usage": 4.0},
                    {"metric": "NVIDIA_L4_GPUS", "limit": 8.0, "usage": 1.0},
                    {"metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 4.0, "usage": 4.0},
                    {"metric": "COMMITTED_NVIDIA_L4_GPUS", "limit": 4.0, "usage": 0.0},
                ],
                "zones": {
                    "us-central1-a": {
                        "machineTypes": [machine("e2-small", 2, 2), G2, A2, A2_ULTRA, A4, N1],
                        "acceleratorTypes": [L4, T4, A100, A100_80, B200],
                    },
                    "us-central1-b": {"machineTypes": [G2, N1], "acceleratorTypes": [T4]},
                },
            },
            "europe-west4": {"zones": {"europe-west4-a": {"machineTypes": [A3], "acceleratorTypes": [H100]}}},
        },
        "skus": SKUS,
    }
