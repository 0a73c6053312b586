"""A Flask application under load: requests that parse, sort, and return JSON and pages."""
import json
import sys

from flask import Flask, jsonify, render_template_string, request

app = Flask(__name__)
PAGE = "<ul>{% for row in rows %}<li>{{ row.name }}: {{ '%.2f' % row.value }}</li>{% endfor %}</ul>"
notes = {}


@app.post("/notes/<int:number>")
def put(number):
    notes[number] = request.get_json()
    return jsonify(stored=number, fields=sorted(notes[number]))


@app.get("/notes")
def show():
    rows = sorted(notes.values(), key=lambda row: row["value"])[:40]
    return render_template_string(PAGE, rows=rows)


n = int(sys.argv[1]) if len(sys.argv) > 1 else 800
client = app.test_client()
sent = 0
for number in range(n):
    note = {"name": f"note {number % 300}", "value": (number * 7919) % 1000, "tags": ["a", "b"] * 5}
    answer = client.post(f"/notes/{number % 300}", data=json.dumps(note),
                         content_type="application/json")
    sent += len(answer.data) + len(client.get("/notes").data)
print(sent)
