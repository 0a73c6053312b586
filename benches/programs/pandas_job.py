"""A pandas job: joins, groups and pivots orders, writes them as CSV and reads them again."""
import io
import sys

import numpy as np
import pandas as pd

n = int(sys.argv[1]) if len(sys.argv) > 1 else 150_000
rng = np.random.default_rng(7)
orders = pd.DataFrame({
    "customer": rng.integers(0, 5000, n),
    "item": [f"item-{i}" for i in rng.integers(0, 800, n)],
    "amount": rng.random(n),
    "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D"),
})
customers = pd.DataFrame({"customer": range(5000), "city": [f"city-{i % 97}" for i in range(5000)]})
joined = orders.merge(customers, on="customer")
by_city = joined.groupby(["city", "item"])["amount"].agg(["sum", "mean", "count"])
months = joined["day"].dt.strftime("%Y-%m")
by_month = joined.assign(month=months).pivot_table("amount", "city", "month", aggfunc="sum")
text = joined.to_csv(index=False)
back = pd.read_csv(io.StringIO(text), parse_dates=["day"])
top = back.sort_values(["city", "amount"]).groupby("city").tail(3)
words = back["item"].str.replace("item-", "", regex=False).map(int)
print(len(by_city), by_month.shape, len(top), int(words.sum()))
