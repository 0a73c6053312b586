#!/usr/bin/env python3
"""Totals of a dataset of `heaptide export --format parquet`, by DuckDB.

    pip install duckdb
    python3 duckdb_totals.py DATASET

Prints rows, allocations and live bytes of each run, host and rank, and the functions that allocate
most, including their callees.
"""

import sys

import duckdb

if len(sys.argv) != 2:
    sys.exit(__doc__)
files = f"{sys.argv[1]}/sites/**/*.parquet"
# Partition columns must be the same in all paths; a dataset is compacted as a whole.
sites = duckdb.read_parquet(files, hive_partitioning=True, union_by_name=True)
totals = duckdb.sql(
    """SELECT run, host, coalesce(rank, -1) AS rank, count(*), sum(allocations)::BIGINT, sum(live_bytes)::BIGINT
       FROM sites GROUP BY ALL ORDER BY ALL"""
)
for row in totals.fetchall():
    print("rank", *row)
functions = duckdb.sql(
    """SELECT f, sum(allocations)::BIGINT AS n
       FROM (SELECT unnest(list_distinct(stack)) AS f, allocations FROM sites)
       GROUP BY f ORDER BY n DESC, f LIMIT 5"""
)
for row in functions.fetchall():
    print("function", *row)
