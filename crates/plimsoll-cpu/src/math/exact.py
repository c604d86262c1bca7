"""Writes exact.txt: correctly rounded results of the functions of double.rs, by mpmath (pip install mpmath).

Each line is a function, an operand and its result, both as the bits of a double. Operands are numbers of single
precision, as those that the double-precision functions are a reference for: spread over all magnitudes at which a
function is neither zero, infinite nor its operand, and spread evenly where it bends.
"""

import random
import struct
from pathlib import Path

from mpmath import cos, erf, erfc, exp, ldexp, log, log1p, mp, mpf, pi, sin, sqrt, tanh

mp.prec = 400


def normal(x):
    return erfc(-x / sqrt(mpf(2))) / 2


FUNCTIONS = {
    # The function, the largest magnitude of interest, and the least operand.
    "exp": (exp, 103, -103),
    "ln": (log, 3e38, 1e-44),
    "softplus": (lambda x: log1p(exp(x)), 100, -100),
    "sin": (sin, 3e38, -3e38),
    "cos": (cos, 3e38, -3e38),
    "tanh": (tanh, 10, -10),
    "sigmoid": (lambda x: 1 / (1 + exp(-x)), 100, -100),
    "erf": (erf, 5, -5),
    "gelu": (lambda x: x * normal(x), 14, -14),
    "gelu_slope": (lambda x: normal(x) + x * exp(-x * x / 2) / sqrt(2 * pi), 14, -14),
}


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def bits(x):
    return struct.unpack("Q", struct.pack("d", x))[0]


def rounded(x):
    """The nearest double, of normal numbers."""
    mp.prec = 53
    nearest = float(+x)
    mp.prec = 400
    return nearest


def main():
    random.seed(1)
    lines = []
    for name, (function, most, least) in FUNCTIONS.items():
        operands = set()
        while len(operands) < 60:
            magnitude = single(float(ldexp(mpf(random.uniform(1, 2)), random.randint(-40, 127))))
            x = random.choice([-1, 1]) * magnitude
            if least <= x <= most and abs(x) <= most:
                operands.add(x)
        while len(operands) < 120:
            x = single(random.uniform(max(least, -20), min(most, 20)))
            if least <= x <= most:
                operands.add(x)
        for x in sorted(operands):
            lines.append(f"{name} {bits(x):016x} {bits(rounded(function(mpf(x)))):016x}\n")
    Path(__file__).with_suffix(".txt").write_text("".join(lines))


main()
