"""Random numbers as a pure function of (seed, position, purpose, token id).

Nothing is drawn from a generator, so nothing depends on batch, row or call order: the noise of a
position can be computed again wherever it is needed, by the target and by a draft model alike.

The mixing function is SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number
generators", figure 16), whose stream starts at a key hashed from seed, position and purpose.
"""

from enum import IntEnum

import torch

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MANTISSA_BITS = 52


class Purpose(IntEnum):
    """What a random number decides; numbers of different purposes are independent."""

    TARGET = 1
    DRAFT = 2
    ACCEPT = 3
    RECOVER = 4


def stream_key(seed: int, position: int, purpose: Purpose) -> int:
    """The start of the random stream of one position of one request, as an int64."""
    key = _mix(seed + _GAMMA)
    key = _mix(key ^ _mix(position * _GAMMA + 1))
    return _signed(_mix(key ^ _mix(int(purpose) * _GAMMA + 2)))


def uniform(seed: int, position: int, purpose: Purpose) -> float:
    """A uniform number in the open interval (0, 1)."""
    bits = _mix(stream_key(seed, position, purpose) + _GAMMA) >> (64 - _MANTISSA_BITS)
    return (bits + 0.5) * 2.0**-_MANTISSA_BITS


def gumbel(keys: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise for some token ids at several positions.

    Args:
        keys: int64 `[N]` stream keys.
        token_ids: int64 `[M]` (the same ids at every position) or `[N, M]`.

    Returns:
        float64 `[N, M]`, finite: -log(-log u) of a u in the open interval (0, 1).
    """
    z = keys[:, None] + (token_ids + 1) * _signed(_GAMMA)  # [N, M]
    z = (z ^ _shift(z, 30)).mul_(_signed(_MIX_1))
    z = (z ^ _shift(z, 27)).mul_(_signed(_MIX_2))
    z ^= _shift(z, 31)
    u = (_shift(z, 64 - _MANTISSA_BITS).double() + 0.5).mul_(2.0**-_MANTISSA_BITS)
    return u.log_().neg_().log_().neg_()


def _mix(value: int) -> int:
    """SplitMix64's output function on Python integers; agrees with `gumbel` bit for bit."""
    z = value & _MASK
    z = ((z ^ (z >> 30)) * _MIX_1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX_2) & _MASK
    return z ^ (z >> 31)


def _signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    value &= _MASK
    return value - 2**64 if value >= 2**63 else value


def _shift(value: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical shift right; torch's own copies the sign bit."""
    return (value >> bits).bitwise_and_((1 << (64 - bits)) - 1)
