"""Sums that decide are the same on every machine: promise 5."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from gossip.values.blocks import dot

PRINTS = """
import numpy as np
from gossip.values.blocks import dot
values = np.random.Generator(np.random.PCG64(0)).standard_normal(1 << 14).astype(np.float32)
print(repr(dot(values, values)))
"""


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_it_is_the_sum_of_the_products_in_double_precision(dtype: type) -> None:
    generator = np.random.default_rng(5)
    one, other = (generator.standard_normal(999).astype(dtype) for _ in range(2))
    assert dot(one, other) == pytest.approx(sum(float(a) * float(b) for a, b in zip(one, other, strict=True)), abs=1e-9)


def test_neither_the_kind_of_processor_nor_blas_changes_a_bit_of_it() -> None:
    values = np.random.Generator(np.random.PCG64(0)).standard_normal(1 << 14).astype(np.float32)
    other_machine = {**os.environ, "OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX2 FMA3"}
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRINTS], env=other_machine, capture_output=True, text=True, check=True
    )
    assert float(process.stdout) == dot(values, values)
