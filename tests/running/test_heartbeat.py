"""What takes long is sent once a second."""

import queue
import time

from jembench import progress
from jembench.running.heartbeat import beating


def test_what_is_new_is_sent_and_nothing_twice():
    events = queue.SimpleQueue()
    with progress.phase("reading", 10, "images") as at, beating(events.put, 0.001):
        at.done = 3
        event = events.get(timeout=10)
        assert (event.kind, event.text, event.done, event.total) == ("progress", "reading", 3, 10)
        assert event.values == {"unit": "images", "rate": 0}
        time.sleep(0.02)
        assert events.empty()
        progress.passed(5)
        assert events.get(timeout=10).values["rate"] > 0
    progress.passed(5)
    time.sleep(0.02)
    assert events.empty()
