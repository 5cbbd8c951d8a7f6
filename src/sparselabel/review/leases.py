"""Who is looking at which questions: several people never see the same image at the same time.

The server's threads share one.
"""

import threading
import time
from collections.abc import Callable, Iterable

Entry = tuple[int, int]
SECONDS = 600.0
"""How long questions are kept for somebody who asks and answers no more."""


class Leases:
    """Questions (row, class) by the page that has them; free again when it lets go, or is silent too long."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._entries_of: dict[str, set[Entry]] = {}
        self._until: dict[str, float] = {}

    def of_others(self, page: str) -> set[Entry]:
        """What other pages have."""
        with self._lock:
            now = self._clock()
            for gone in [name for name, until in self._until.items() if until < now]:
                self.release(gone)
            return {entry for name, entries in self._entries_of.items() if name != page for entry in entries}

    def hold(self, page: str, entries: Iterable[Entry]) -> None:
        """Give these to a page, and no others that it had."""
        with self._lock:
            self._entries_of[page] = set(entries)
            self.renew(page)

    def renew(self, page: str) -> None:
        """Somebody is still there."""
        with self._lock:
            if page in self._entries_of:
                self._until[page] = self._clock() + SECONDS

    def release(self, page: str) -> None:
        """Somebody has gone."""
        with self._lock:
            self._entries_of.pop(page, None)
            self._until.pop(page, None)
