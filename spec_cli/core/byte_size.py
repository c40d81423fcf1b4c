"""Amounts of memory for people to read."""


def format_bytes(num_bytes: float) -> str:
    """Bytes in units of 1000: `9.8 GB`, `310 MB`, `12.3 kB`, `999 B`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            value = num_bytes / size
            return f"{value:.1f} {unit}" if value < 100 else f"{value:,.0f} {unit}"
    return f"{num_bytes:.0f} B"
