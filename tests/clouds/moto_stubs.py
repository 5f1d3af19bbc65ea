"""Answers in front of moto: faults on demand, and what moto lacks: spot history, scores, quotas, the price list."""

import io
import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

JSON = "application/x-amz-json-1.1"
XML = "text/xml"
EC2_XMLNS = "http://ec2.amazonaws.com/doc/2016-11-15/"
SPOT_FROM = "2026-01-01T00:00:00+00:00"
WATCHER_KEY = "AKIAWATCHER"
"""Calls signed with this key are the test's own eyes: no fault meets them, and no log keeps them."""
Data = dict[str, Any]
Offered = Callable[[Data, str], list[dict[str, str]]]


class Asked(NamedTuple):
    """One call of the SDK."""

    service: str
    """As signed: ec2, sts, pricing, servicequotas."""
    region: str
    action: str
    fields: dict[str, Any]
    key: str = ""
    """The caller's access key."""

    @property
    def is_json(self) -> bool:
        return self.service in ("pricing", "servicequotas")


class Answer(NamedTuple):
    """What goes back."""

    status: int
    kind: str
    body: bytes


def read_asked(environ: dict[str, Any]) -> Asked:
    """Read caller, service and region from the signature, action and arguments from the body, and leave that in place.

    Objects are whole files: their action is the method, and their body is not read here.
    """
    scope = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition(",")[0].split("/")
    key, service, region = (scope[0], scope[3], scope[2]) if len(scope) == 5 else ("", "", "")
    if service == "s3":
        return Asked(service, region, environ.get("REQUEST_METHOD", ""), {"path": environ.get("PATH_INFO", "")}, key)
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        return Asked(service, region, target.rpartition(".")[2], _json(body), key)
    form = environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded")
    fields = dict(parse_qsl(body.decode("utf-8", "replace"))) if form else {}
    return Asked(service, region, fields.get("Action", ""), fields, key)


def _json(body: bytes) -> dict[str, Any]:
    try:
        read = json.loads(body or b"{}")
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


_CODES = {
    # do: (code of EC2, code of JSON services, status of EC2)
    "throttle": ("RequestLimitExceeded", "ThrottlingException", 503),
    "expired": ("RequestExpired", "ExpiredTokenException", 400),
    "unknown": ("AuthFailure", "UnrecognizedClientException", 401),
    "denied": ("UnauthorizedOperation", "AccessDeniedException", 403),
    "error": ("InternalError", "InternalFailure", 500),
}
_STS_CODES = {"expired": "ExpiredToken", "unknown": "InvalidClientTokenId", "denied": "AccessDenied"}


def answer_fault(asked: Asked, fault: dict[str, Any]) -> Answer:
    """Fail as the real service would."""
    kind = JSON if asked.is_json else XML
    if fault["do"] == "empty":
        return Answer(200, kind, b"{}" if asked.is_json else _xml(asked, ""))
    if fault["do"] == "body":
        return Answer(fault.get("status", 200), kind, str(fault.get("body", "")).encode())
    ec2_code, json_code, status = _CODES[fault["do"]]
    message = fault.get("message", f"{fault['do']} on demand of the scenario")
    if asked.is_json:
        body = json.dumps({"__type": fault.get("code", json_code), "message": message})
        return Answer(fault.get("status", 500 if fault["do"] == "error" else 400), JSON, body.encode())
    code = fault.get("code", ec2_code if asked.service == "ec2" else _STS_CODES.get(fault["do"], ec2_code))
    error = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if asked.service == "ec2":
        body = f"<Response><Errors><Error>{error}</Error></Errors><RequestID>r</RequestID></Response>"
    else:
        body = f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error><RequestId>r</RequestId></ErrorResponse>"
    return Answer(fault.get("status", status), XML, body.encode())


def answer_stub(asked: Asked, data: Data, offered: Offered) -> Answer | None:
    """Answer what moto cannot; None for moto."""
    if asked.service == "ec2" and asked.action == "DescribeRegions" and "regions" in data:
        return _regions(asked, data["regions"])
    if asked.service == "ec2" and asked.action == "DescribeSpotPriceHistory":
        return _spot_history(asked, data, offered(data, asked.region))
    if asked.service == "ec2" and asked.action == "GetSpotPlacementScores":
        return _placement_scores(asked, data)
    if asked.service == "servicequotas" and asked.action == "ListServiceQuotas":
        return _quotas(asked, data)
    if asked.service == "servicequotas" and asked.action == "GetServiceQuota":
        return _quota(asked, data)
    if asked.service == "pricing" and asked.action == "GetProducts":
        return _products(asked, data)
    return None


def _regions(asked: Asked, names: list[str]) -> Answer:
    entries = [{"regionName": name, "optInStatus": "opt-in-not-required"} for name in names]
    return Answer(200, XML, _xml(asked, _set("regionInfo", entries)))


def _spot_history(asked: Asked, data: Data, offers: list[dict[str, str]]) -> Answer:
    """Newest first; before StartTime only what was in force then, as the real service does."""
    records = data.get("spot_prices", {}).get(asked.region)
    if records is None:
        records = _made_up(asked.region, data, offers)
    types = _numbered(asked.fields, "InstanceType")
    since, until = (_moment(asked.fields.get(name)) for name in ("StartTime", "EndTime"))
    kept: list[list[Any]] = []
    started: set[tuple[str, str]] = set()
    for record in sorted(records, key=lambda record: _moment(record[2]) or 0.0, reverse=True):
        at_s, pool = _moment(record[2]) or 0.0, (record[0], record[1])
        if (types and record[0] not in types) or (until and at_s > until) or pool in started:
            continue
        kept.append(record)
        if since and at_s <= since:
            started.add(pool)
    page, token = _page(kept, asked.fields.get("NextToken"), data)
    entries = [
        {
            "instanceType": kind,
            "productDescription": "Linux/UNIX",
            "spotPrice": f"{price:.6f}" if isinstance(price, float) else str(price),
            "timestamp": at,
            "availabilityZone": zone,
        }
        for kind, zone, at, price in page
    ]
    more = f"<nextToken>{token}</nextToken>" if token else ""
    return Answer(200, XML, _xml(asked, _set("spotPriceHistorySet", entries) + more))


def _made_up(region: str, data: Data, offers: list[dict[str, str]]) -> list[list[Any]]:
    prices = _for_region(data.get("on_demand", {}), region)
    share = float(data.get("spot_share", 0.4))
    listed = [offer for offer in offers if isinstance(prices.get(offer["InstanceType"]), int | float)]
    return [
        [offer["InstanceType"], offer["Location"], SPOT_FROM, prices[offer["InstanceType"]] * share] for offer in listed
    ]


def _placement_scores(asked: Asked, data: Data) -> Answer:
    if "placement_scores" not in data:
        return answer_fault(asked, {"do": "denied"})
    scores = data["placement_scores"].get(asked.region, {})
    types = _numbered(asked.fields, "InstanceType")
    found: Data = next((scores[kind] for kind in (*types, "*") if kind in scores), {})
    entries = [
        {"region": asked.region, "availabilityZoneId": zone, "score": str(score)} for zone, score in found.items()
    ]
    return Answer(200, XML, _xml(asked, _set("spotPlacementScoreSet", entries)))


def _quotas(asked: Asked, data: Data) -> Answer:
    limits = _for_region(data.get("quotas", {}), asked.region)
    page, token = _page(list(limits.items()), asked.fields.get("NextToken"), data)
    listed = [_limit(code, value) for code, value in page]
    return _json_answer({"Quotas": listed, **({"NextToken": token} if token else {})})


def _quota(asked: Asked, data: Data) -> Answer:
    limits, code = _for_region(data.get("quotas", {}), asked.region), asked.fields.get("QuotaCode", "")
    if code not in limits:
        return Answer(400, JSON, json.dumps({"__type": "NoSuchResourceException", "message": code}).encode())
    return _json_answer({"Quota": _limit(code, limits[code])})


def _limit(code: str, value: float) -> Data:
    return {
        "ServiceCode": "ec2",
        "QuotaCode": code,
        "QuotaName": code,
        "Value": value,
        "Unit": "None",
        "Adjustable": True,
    }


def _products(asked: Asked, data: Data) -> Answer:
    wanted = {found["Field"]: found["Value"] for found in asked.fields.get("Filters", [])}
    products = [
        product
        for product in _price_list(wanted.get("regionCode", ""), data)
        if all(product["product"]["attributes"].get(name) == value for name, value in wanted.items())
    ]
    page, token = _page(products, asked.fields.get("NextToken"), data)
    said = {"FormatVersion": "aws_v1", "PriceList": [json.dumps(product) for product in page]}
    return _json_answer({**said, **({"NextToken": token} if token else {})})


def _price_list(region: str, data: Data) -> Iterable[dict[str, Any]]:
    """Each machine as the real list has it: what it costs, and entries that look alike and cost something else."""
    plain = {
        "regionCode": region,
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    alike: tuple[tuple[dict[str, str], float], ...] = (
        ({}, 1.0),
        ({"capacitystatus": "AllocatedCapacityReservation"}, 0.0),
        ({"operatingSystem": "Windows"}, 1.5),
        ({"tenancy": "Dedicated"}, 1.1),
        ({"marketoption": "CapacityBlock"}, 0.0),
    )
    for kind, listed in _for_region(data.get("on_demand", {}), region).items():
        for other, factor in alike:
            costs = listed if isinstance(listed, dict) else {"USD": listed}
            unit = {currency: f"{price * factor:.10f}" for currency, price in costs.items()}
            dimension = {"unit": "Hrs", "pricePerUnit": unit, "beginRange": "0", "endRange": "Inf"}
            attributes = {**plain, **other, "instanceType": kind}
            yield {
                "product": {"productFamily": "Compute Instance", "attributes": attributes, "sku": kind},
                "terms": {"OnDemand": {f"{kind}.T": {"priceDimensions": {f"{kind}.T.D": dimension}}}},
            }


def _for_region(table: Data, region: str) -> Data:
    return dict(table.get(region) or table.get("*") or {})


def _page(entries: list[Any], token: str | None, data: Data) -> tuple[list[Any], str | None]:
    size, start = int(data.get("page_size", 1000)), int(token or 0)
    return entries[start : start + size], str(start + size) if start + size < len(entries) else None


def _numbered(fields: dict[str, Any], name: str) -> list[str]:
    return [value for key, value in fields.items() if key.partition(".")[0] == name]


def _moment(text: str | None) -> float | None:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None


def _set(name: str, entries: list[dict[str, str]]) -> str:
    rows = ("".join(f"<{key}>{escape(value)}</{key}>" for key, value in entry.items()) for entry in entries)
    return f"<{name}>{''.join(f'<item>{row}</item>' for row in rows)}</{name}>"


def _xml(asked: Asked, inside: str) -> bytes:
    name = f"{asked.action}Response"
    return f'<{name} xmlns="{EC2_XMLNS}"><requestId>r</requestId>{inside}</{name}>'.encode()


def _json_answer(said: dict[str, Any]) -> Answer:
    return Answer(200, JSON, json.dumps(said).encode())
