from threading import Thread

from hexcloud.controller.memory import Requests


def test_reasons_of_a_burst_are_taken_once_and_together() -> None:
    requests = Requests()
    threads = [Thread(target=requests.replan, args=(reason,)) for reason in ("schedule", "manual", "schedule")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(requests.take_replans()) == ["manual", "schedule"]
    assert requests.take_replans() == ()


def test_the_first_reason_to_stop_stays() -> None:
    requests = Requests()
    assert requests.stop_reason is None
    requests.stop("Ctrl-C")
    requests.stop("again")
    assert requests.stop_reason == "Ctrl-C"
