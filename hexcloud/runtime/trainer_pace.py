"""GangPace: makes the trainer as slow as the gang it stands for."""


class GangPace:
    """Says when a step may end. Ends lie at least samples / rate apart, so no span of time trains more than the rate.

    Time between two steps that is no waiting for data (publishing, fetching a batch that lay ready) belongs to the
    gang's step too; it is taken off the next step if it is at most a tenth of it.
    """

    _HANDOVER = 0.1

    def __init__(self, samples_per_s: float | None) -> None:
        self._samples_per_s = samples_per_s
        self._end_s = float("-inf")

    def end_s(self, begun_s: float, samples: int, share: float = 1.0) -> float:
        """Return the moment before which a step must not end that began then. Times are monotonic seconds.

        `share`: machines of the gang over those that the rate is of.
        """
        if self._samples_per_s is None:
            return begun_s
        duration = samples / (self._samples_per_s * share)
        is_handover = begun_s - self._end_s <= self._HANDOVER * duration
        self._end_s = (self._end_s if is_handover else begun_s) + duration
        return self._end_s
