"""Adds up sales by customer, from a CSV file that it makes first: a job that needs far more memory
than its result.

    python3 totals.py                 # all rows at once
    python3 totals.py --stream        # one row at a time
"""

import csv
import sys

ROWS = 48_000


def make(path):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["customer", "item", "price"])
        for row in range(ROWS):
            writer.writerow([f"customer {row % 100}", f"item {row % 7}", row % 1000])


def read_rows(path):
    with open(path, newline="") as file:
        return [row for row in csv.DictReader(file)]


def stream_rows(path):
    with open(path, newline="") as file:
        yield from csv.DictReader(file)


def add_up(rows):
    totals = {}
    for row in rows:
        totals[row["customer"]] = totals.get(row["customer"], 0) + int(row["price"])
    return totals


def main():
    make("sales.csv")
    rows = stream_rows if "--stream" in sys.argv else read_rows
    totals = add_up(rows("sales.csv"))
    print(len(totals), "customers,", sum(totals.values()), "in all")


if __name__ == "__main__":
    main()
