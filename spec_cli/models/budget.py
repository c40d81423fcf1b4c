"""One budget for the key-value caches of target and draft."""

from collections.abc import Callable


class MemoryBudget:
    """Bytes that caches may take in all; reserved before anything is allocated.

    Attributes:
        total_bytes: The limit.
        used_bytes: What is reserved now.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self._reclaimers: list[Callable[[], int]] = []

    def add_reclaimer(self, reclaim: Callable[[], int]) -> None:
        """Register a way to drop unused cache; it returns the bytes that came free."""
        self._reclaimers.append(reclaim)

    def reserve(self, num_bytes: int, *, reclaim: bool) -> bool:
        """Take bytes if there are enough.

        Args:
            num_bytes: How many.
            reclaim: Whether unused cache may be dropped for it.
        """
        if self.used_bytes + num_bytes > self.total_bytes and reclaim:
            self.reclaim()
        if self.used_bytes + num_bytes > self.total_bytes:
            return False
        self.used_bytes += num_bytes
        return True

    def reclaim(self) -> None:
        """Drop all unused cache."""
        self.used_bytes -= sum(drop() for drop in self._reclaimers)

    def release(self, num_bytes: int) -> None:
        """Give bytes back."""
        self.used_bytes -= num_bytes
