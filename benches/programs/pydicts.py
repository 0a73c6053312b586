"""Many small Python objects: builds records, dumps and loads JSON, indexes and regroups them."""
import json
import random
import sys

count = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000
rnd = random.Random(7)
words = [f"w{i:05d}" for i in range(5000)]


def record(i):
    return {
        "id": i,
        "name": rnd.choice(words),
        "tags": [rnd.choice(words) for _ in range(4)],
        "pos": {"x": rnd.random(), "y": rnd.random()},
        "text": " ".join(rnd.choice(words) for _ in range(6)),
    }


text = json.dumps([record(i) for i in range(count)])
back = json.loads(text)
index = {}
groups = {}
for r in back:
    for tag in r["tags"]:
        index.setdefault(tag, []).append(r["id"])
    groups.setdefault(r["name"][:3], []).append({k: v for k, v in r.items() if k != "text"})
print(len(text), len(index), len(groups))
