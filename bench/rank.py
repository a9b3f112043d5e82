"""CPU seconds for exact separation ranks, one thread.

python bench/rank.py
"""

import time

import needs
import torch

from allometry import measure
from allometry.models.polynomial import PolynomialNetwork
from allometry.targets import high_rank_functions


def timed(name, f, partition, inputs, **options):
    begun = time.process_time()
    found = measure.separation_rank(f, partition, inputs, **options)
    print(
        f"{name}: rank {found}, {time.process_time() - begun:.1f} s ({found.method})", flush=True
    )


def main():
    torch.set_num_threads(1)
    net = PolynomialNetwork(4, 2, [3] * 4, outputs=None)
    measure.generic_(net, measure.Field(), torch.Generator().manual_seed(0))
    timed("four cubic layers", lambda x, field: net(x, field)[:, 0], range(2), 4)
    f = high_rank_functions.inner_power(3, 99)
    timed(f.name, f, f.partition, f.inputs, start=f.rank + 50, primes=measure.PRIMES[:1])


if __name__ == "__main__":
    needs.run(main)
