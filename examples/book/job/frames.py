"""Adds up sales by customer in pandas: each step makes a new frame, and all of them stay.

    python3 frames.py             # copies of all columns
    python3 frames.py --columns   # only the columns that are needed
"""

import sys

import numpy
import pandas

ROWS = 500_000


def load():
    rows = numpy.arange(ROWS, dtype="int64")
    columns = {"customer": rows % 100, "item": rows % 7, "price": rows % 1000}
    return pandas.DataFrame(columns | {f"note{i}": rows + i for i in range(5)})


def clean(sales):
    if "--columns" in sys.argv:
        sales = sales[["customer", "price"]]
    paid = sales[sales["price"] > 0]
    return paid.sort_values("price")


def main():
    sales = load()
    totals = clean(sales).groupby("customer")["price"].sum()
    print(len(totals), "customers,", totals.sum(), "in all")


if __name__ == "__main__":
    main()
