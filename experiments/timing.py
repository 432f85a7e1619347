"""Times of calls that are compared, in turns."""

import time


def seconds_by_round(calls, rounds, window_seconds):
    """Seconds per call of each of the functions, by round: in a round each is called for a window of time. All are
    called once before."""
    for call in calls:
        call()
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, found in zip(calls, times, strict=True):
            found.append(_seconds_per_call(call, window_seconds))
    return times


def _seconds_per_call(call, window_seconds):
    start, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < window_seconds or count == 0:
        call()
        count += 1
    return passed / count
