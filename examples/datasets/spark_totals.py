#!/usr/bin/env python3
"""Totals of a dataset of `heaptide export --format parquet`, by Apache Spark.

    pip install pyspark        # and Java 17 or later: apt install openjdk-17-jre-headless
    python3 spark_totals.py DATASET [MASTER]

MASTER is the URL of a cluster whose workers can read the dataset at the same path, such as
spark://node1:7077. `local-cluster[2,1,1024]`, the default, starts two workers with a core and 1 GiB
each on this machine. Prints rows, allocations and live bytes of each run, host and rank, and the
functions that allocate most, including their callees.
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

if not 2 <= len(sys.argv) <= 3:
    sys.exit(__doc__)
sites_of = os.path.abspath(sys.argv[1]) + "/sites"
master = sys.argv[2] if len(sys.argv) == 3 else "local-cluster[2,1,1024]"
spark = (
    SparkSession.builder.master(master)
    .appName("heaptide")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "8")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
# Spark itself decodes %XX in paths. mergeSchema supports columns that only newer versions of
# Heaptide write.
sites = spark.read.option("mergeSchema", "true").parquet(sites_of)
totals = (
    sites.withColumn("rank", F.coalesce("rank", F.lit(-1)))
    .groupBy("run", "host", "rank")
    .agg(F.count("*"), F.sum("allocations"), F.sum("live_bytes"))
    .orderBy("run", "host", "rank")
)
for row in totals.collect():
    print("rank", *row)
functions = (
    sites.select(F.explode(F.array_distinct("stack")).alias("f"), "allocations")
    .groupBy("f")
    .agg(F.sum("allocations").alias("n"))
    .orderBy(F.desc("n"), "f")
    .limit(5)
)
for row in functions.collect():
    print("function", *row)
spark.stop()
