"""The partition of a scope is the one that every Kafka client would choose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.streams.logs.base import murmur2, partition_for

# org.apache.kafka.common.utils.UtilsTest.testMurmur2, as signed integers.
JAVA_VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]
# kafka-python test_partitioner.py, test_murmur2_java_compatibility: partition of 1,000.
PYTHON_VECTORS = [
    (b"", 681),
    (b"a", 524),
    (b"ab", 434),
    (b"abc", 107),
    (b"123456789", 566),
    (b"\x00 ", 742),
]


@pytest.mark.parametrize(("data", "signed"), JAVA_VECTORS)
def test_the_hash_is_kafkas(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFFFFFF


@pytest.mark.parametrize(("data", "partition"), PYTHON_VECTORS)
def test_the_partition_is_kafkas(data: bytes, partition: int) -> None:
    assert partition_for(data.decode(), 1000) == partition


@pytest.mark.parametrize(
    ("scope", "unsigned"),
    [("日本語", 1431860170), ("Zürich", 2743826481)],
)
def test_text_is_hashed_as_utf8(scope: str, unsigned: int) -> None:
    assert murmur2(scope.encode()) == unsigned


@given(st.binary(max_size=300))
def test_the_hash_is_the_same_as_other_clients(data: bytes) -> None:
    partitioner = pytest.importorskip("aiokafka.partitioner")
    assert murmur2(data) == partitioner.murmur2(data) & 0xFFFFFFFF


@given(st.text(max_size=50), st.integers(1, 64))
def test_the_partition_is_within_bounds(scope: str, partitions: int) -> None:
    assert 0 <= partition_for(scope, partitions) < partitions
