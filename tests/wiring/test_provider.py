"""Who rents: what a run on real machines needs before anything is asked of a cloud."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from hexcloud import wiring
from hexcloud.controller.outside import LEASE_STARTUPS, Timing
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.run import RunSpec, RunState
from hexcloud.wiring import provider

GOOGLE_KEY = json.dumps(
    {
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
        "gcs_base_url": "http://127.0.0.1",
    }
)


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    """A run on real machines, on a computer that has all it takes."""
    pytest.importorskip("sky", reason="SkyPilot is not installed")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")  # else the SDK looks for keys outside this test
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "made-up")
    return RunSpec(provider="skypilot", store="s3://runs/mine", target="10k")


def test_a_real_run_has_no_trace_and_one_second_of_it_is_a_second(real: RunSpec) -> None:
    assert real.trace is None
    run = wiring.new_run(real, wiring.run_input(real), samples_per_s=10.0)
    assert run.clock_scale == 1.0
    began = wiring.begun_now(run.model_copy(update={"clock_origin_wall_s": 1.0, "clock_origin_run_s": 1.0}))
    assert began.clock_origin_run_s == began.clock_origin_wall_s > 1.0, "real prices do not stand still"


def test_only_clouds_that_list_machines_by_their_tags_are_rented_on(real: RunSpec) -> None:
    given = wiring.run_input(real)
    assert given.policy.clouds == ("aws", "gcp")
    assert {offer.cloud for offer in given.market.offers} == {"aws", "gcp"}
    only = wiring.run_input(real.model_copy(update={"cloud": ("gcp",)}))
    assert {offer.cloud for offer in only.market.offers} == {"gcp"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"provider": "skyplot"}, "'skyplot' is unknown.*did you mean skypilot.*rents from: local, skypilot"),
        ({"store": None}, "store: provider skypilot needs a bucket .*--store s3://"),
        ({"store": "ftp://nowhere/x"}, "store: 'ftp://nowhere/x': provider skypilot needs a bucket .*--store s3://"),
        ({"store": "nowhere"}, "store: 'nowhere': provider skypilot needs a bucket"),
        ({"store": "s3://[bad/x"}, r"store: 's3://\[bad/x': a store is s3://BUCKET/PREFIX"),
        ({"trace": "demo"}, "trace: real machines have real prices"),
        ({"pass_env": ("NO_SUCH_VARIABLE",)}, "pass_env: NO_SUCH_VARIABLE not set"),
        ({"cloud": ("nebius",)}, "does not rent on nebius: .* it rents on aws, gcp"),
    ],
)
def test_what_is_missing_is_said_with_its_field_and_the_mend(
    real: RunSpec, change: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        wiring.run_input(real.model_copy(update=change))


@pytest.mark.parametrize("spelt", ["file://{}/store", " file://{}/store", "FILE://{}/store"])
def test_rented_machines_do_not_meet_in_a_folder_and_none_is_made(real: RunSpec, tmp_path: Path, spelt: str) -> None:
    spec = real.model_copy(update={"store": spelt.format(tmp_path)})
    with pytest.raises(ConfigError, match="provider skypilot needs a bucket in which the machines meet"):
        provider.require_provider(spec)
    assert not (tmp_path / "store").exists()
    provider.require_provider(spec.model_copy(update={"provider": "local"}))


@pytest.mark.parametrize("store", ["s3://runs/mine", "gs://runs/mine"])
def test_rented_machines_meet_in_a_bucket(real: RunSpec, monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", GOOGLE_KEY)
    provider.require_provider(real.model_copy(update={"store": store}))


def test_a_run_on_this_computer_has_a_store_that_is_one_or_none() -> None:
    with pytest.raises(ConfigError, match=r"store: 's3://\[bad/x'"):
        provider.require_provider(RunSpec(store="s3://[bad/x"))
    provider.require_provider(RunSpec())


def test_a_policy_that_leaves_no_cloud_to_rent_on_does_not_mean_every_cloud(real: RunSpec, tmp_path: Path) -> None:
    policy = tmp_path / "mine.yaml"
    policy.write_text("clouds: [nebius]\n")
    with pytest.raises(ConfigError, match="does not rent on nebius"):
        wiring.run_input(real.model_copy(update={"policy": str(policy)}))
    policy.write_text("clouds: [nebius, aws]\n")
    assert wiring.run_input(real.model_copy(update={"policy": str(policy)})).policy.clouds == ("aws",)


def test_without_skypilot_the_message_says_what_to_install(real: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sky", None)
    with pytest.raises(ConfigError, match=r"not installed here \(sky\): pip install 'hexcloud\[cloud\]'"):
        wiring.run_input(real)
    run = wiring.new_run(RunSpec(), wiring.run_input(RunSpec()), samples_per_s=10.0)
    with pytest.raises(ConfigError, match="pip install"):
        wiring.provisioner(run.model_copy(update={"spec": real}))


def test_a_module_of_a_package_that_is_not_there_is_not_there() -> None:
    assert provider.is_installed("json.decoder")
    assert not provider.is_installed("no_such_package.module")


def test_a_variable_is_passed_by_name_and_its_value_is_never_in_the_run(
    real: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://10.0.0.1:5000")
    spec = real.model_copy(update={"pass_env": ("AWS_ENDPOINT_URL",)})
    run = wiring.new_run(spec, wiring.run_input(spec), samples_per_s=10.0)
    assert provider.passed_env(run) == {"AWS_ENDPOINT_URL": "http://10.0.0.1:5000"}
    assert "10.0.0.1" not in run.model_dump_json()
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    with pytest.raises(ConfigError, match=rf"pass_env: AWS_ENDPOINT_URL not set .*`hexcloud down {run.id}`"):
        provider.passed_env(run)
    ending = run.model_copy(update={"state": RunState.STOPPING})
    assert provider.passed_env(ending) == {}, "a run that ends must end without it, too"


def test_a_store_that_does_not_keep_what_is_written_is_refused_before_anything_is_rented(tmp_path: Path) -> None:
    spec = RunSpec(store=f"file://{tmp_path}/store")
    provider.require_store(spec)
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []
    shutil.rmtree(tmp_path / "store/preflight", ignore_errors=True)
    (tmp_path / "store/preflight").write_text("a file where a folder should be")
    with pytest.raises(ConfigError, match=r"store: nothing was rented, .*cannot write preflight/"):
        provider.require_store(spec)
    provider.require_store(RunSpec())


def test_a_real_runs_lease_outlasts_two_startups_and_a_local_one_is_the_usual(real: RunSpec) -> None:
    run = wiring.new_run(real, wiring.run_input(real), samples_per_s=10.0)
    timing = wiring.timing_of(run)
    startup_s = wiring.run_input(real).market.calibration.startup_s
    assert timing.spend_lease_s > LEASE_STARTUPS * startup_s > 2 * startup_s
    local = RunSpec()
    assert wiring.timing_of(wiring.new_run(local, wiring.run_input(local), samples_per_s=10.0)) == Timing()


@pytest.mark.parametrize("startup_s", [60.0, 300.0, 1800.0])
def test_slower_machines_get_more_patience(startup_s: float) -> None:
    timing = Timing.of_clouds(startup_s)
    assert timing.spend_lease_s > 2 * startup_s + timing.silent_trainer_s
    assert min(timing.provision_s, timing.setup_s) >= 3 * startup_s
    assert timing.start_s == timing.provision_s + timing.setup_s + timing.register_s


def test_only_a_real_run_has_an_authority(real: RunSpec) -> None:
    run = wiring.new_run(real, wiring.run_input(real), samples_per_s=10.0)
    authority = provider.authority_of(run, b"0123456789abcdef")
    assert authority is not None and "BEGIN CERTIFICATE" in authority.ca_pem
    local = wiring.new_run(RunSpec(), wiring.run_input(RunSpec()), samples_per_s=10.0)
    assert provider.authority_of(local, b"0123456789abcdef") is None
