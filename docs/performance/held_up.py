"""Print how long this thread was kept from going on while others started CUDA.

    python -m cuteblas --numpy docs/performance/held_up.py [SECONDS]
"""

from __future__ import annotations

import sys
from time import perf_counter, sleep

LEAST = 3e-3                            # seconds that count

limit = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
begin = last = perf_counter()
found = [0.0]
while (now := perf_counter()) - begin < limit:
    if now - last > LEAST:
        found.append(now - last)
    last = perf_counter()
    sleep(1e-4)
print(f"{1e3 * sum(found):.1f} ms, at once {1e3 * max(found):.1f}")
