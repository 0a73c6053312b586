"""Writes the generated inputs, sqlite.sql and jq.json, into the given directory."""
import json
import os
import random
import sys

JSON_BYTES = 30_000_000

SQL = """\
create table t(id integer primary key, grp integer, name text, body text);
with recursive c(i) as (select 1 union all select i+1 from c where i < 300000)
insert into t select i, (i * 7919) % 997, 'name-' || ((i * 31337) % 100003),
    'body text of row ' || i || ' ' || hex(i * 2654435761) from c;
create index t_name on t(name);
create index t_grp on t(grp, name);
select count(*), sum(length(body)) from t;
select sum(n) from (select grp, count(*) n, max(name) from t group by grp);
select count(*) from (select name, count(*) n from t group by name having n > 2);
select count(*) from t a join t b on a.name = b.name where a.grp = 17;
select length(group_concat(substr(body, 1, 12))) from t where grp < 100;
update t set body = body || '!' where grp % 10 = 3;
select count(distinct substr(body, 1, 22)) from t;
"""


def json_object(rnd, i):
    user = {"name": f"user{rnd.randrange(9999)}", "mail": f"m{i}@example.org", "ok": bool(i & 1)}
    values = [rnd.randrange(100_000) for _ in range(6)]
    note = "x" * rnd.randrange(10, 60)
    return {"id": i, "user": user, "vals": values, "note": note, "score": rnd.random()}


def write_json(path):
    rnd = random.Random(5)
    written, i = 0, 0
    with open(path, "w") as out:
        out.write("[")
        while written < JSON_BYTES:
            text = (",\n" if i else "") + json.dumps(json_object(rnd, i))
            out.write(text)
            written += len(text)
            i += 1
        out.write("]\n")


directory = sys.argv[1]
with open(os.path.join(directory, "sqlite.sql"), "w") as out:
    out.write(SQL)
write_json(os.path.join(directory, "jq.json"))
