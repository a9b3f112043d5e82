"""Ways to spoil a valid file, each a pure function of its bytes and of a generator's state."""

import random
from collections.abc import Sequence

NUMBERS = [
    *(b"0", b"-1", b"nan", b"inf", b"-inf", b"1e308", b"1e999", b"-0.0", b"1e-320", b"9" * 25),
    *(b"9" * 400, b"9" * 5000, b"3,142", b"1.300.000", b"0x10", b"1_0", b"\xc2\xb2", b"true"),
    *(b"4294967296", b"9223372036854775808", b"-9223372036854775809", b"1e5", b"null"),
]
TEXTS = [
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1b[2J", b"\xe2\x80\xae", b"\xed\xa0\x80", b"\r"),
    *(b"[/bold]", b"{}", b"[]", b'"', b"'", b"{{7*7}}", b"../../x", b"/dev/zero", b"%s%n", b"\n"),
    *(b"[" * 3000, b'{"a":' * 3000, b"(" * 3000, b"A" * 3000, b"<script>", b"$(touch x)"),
]


def mutate(data: bytes, rng: random.Random, words: Sequence[bytes] = ()) -> bytes:
    """`data` after one to four random changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = _once(data, rng, words)
    return data


def _once(data: bytes, rng: random.Random, words: Sequence[bytes]) -> bytes:
    a, b = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    near = min(len(data), a + rng.choice((1, 2, 4, 8)))
    match rng.randrange(10):
        case 0:
            return data[:a]
        case 1:
            return data[:a] + data[b:]
        case 2:
            return data[:b] + data[a:b] + data[b:]
        case 3:
            return data[:a] + bytes(rng.randrange(256) for _ in data[a:near]) + data[near:]
        case 4:
            return data[:a] + rng.choice(TEXTS) + data[a:]
        case 5:
            return data[:a] + rng.choice([*words, *TEXTS]) + data[near:]
        case 6:
            return _number(data, rng)
        case 7:
            return _line(data, rng)
        case 8:
            flipped = bytes(byte ^ 1 << rng.randrange(8) for byte in data[a : a + 1])
            return data[:a] + flipped + data[a + 1 :]
        case _:
            return _number(_number(data, rng), rng)


def _number(data: bytes, rng: random.Random) -> bytes:
    """Another number in place of one that stands there."""
    places = [i for i, byte in enumerate(data[:20_000]) if 48 <= byte <= 57]
    if not places:
        return data + rng.choice(NUMBERS)
    first = last = rng.choice(places)
    while first > 0 and data[first - 1 : first] in b"0123456789.-+eE" and data[first - 1 : first]:
        first -= 1
    while last < len(data) and data[last : last + 1] in b"0123456789.-+eE":
        last += 1
    return data[:first] + rng.choice(NUMBERS) + data[last:]


def _line(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    if rng.random() < 0.5:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        lines.insert(i, lines[j])
    return b"\n".join(lines)
