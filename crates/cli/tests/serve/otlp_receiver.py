"""A receiver of OTLP over HTTP that decodes with the classes of OpenTelemetry itself.

Prints its port, then a line of JSON for each request that it takes. Arguments: the port, 0 for any,
and the statuses of its first answers; all others are 200.
"""

import gzip
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as profiles

STATUSES = [int(status) for status in sys.argv[2:]]


def value(any_value):
    return getattr(any_value, any_value.WhichOneof("value"))


def attributes(pairs):
    return {pair.key: value(pair.value) for pair in pairs}


def metric(of):
    kind = of.WhichOneof("data")
    data = getattr(of, kind)
    points = [
        {
            "attributes": attributes(point.attributes),
            "value": getattr(point, point.WhichOneof("value")),
            "start": point.start_time_unix_nano,
            "time": point.time_unix_nano,
        }
        for point in data.data_points
    ]
    found = {"kind": kind, "unit": of.unit, "help": of.description, "points": points}
    if kind == "sum":
        found["temporality"] = data.aggregation_temporality
        found["monotonic"] = data.is_monotonic
    return found


def of_metrics(body):
    request = metrics.ExportMetricsServiceRequest.FromString(body)
    resources = []
    for resource in request.resource_metrics:
        found = {}
        for scope in resource.scope_metrics:
            assert scope.scope.name == "heaptide", scope.scope
            for one in scope.metrics:
                assert one.name not in found, one.name
                found[one.name] = metric(one)
        resources.append({"attributes": attributes(resource.resource.attributes), "metrics": found})
    return resources


def check_dictionary(dictionary):
    """What profiles.proto requires of each table: a zero element first, and no duplicates."""
    tables = [
        dictionary.mapping_table,
        dictionary.location_table,
        dictionary.function_table,
        dictionary.attribute_table,
        dictionary.stack_table,
    ]
    for table in tables:
        assert table[0] == type(table[0])(), table[0]
        elements = [element.SerializeToString() for element in table]
        assert len(set(elements)) == len(elements), "duplicates"
    assert dictionary.string_table[0] == ""
    assert len(set(dictionary.string_table)) == len(dictionary.string_table)
    link = dictionary.link_table[0]
    assert (link.trace_id, link.span_id) == (bytes(16), bytes(8))


def sample(of, dictionary):
    strings = dictionary.string_table

    def frames(location):
        functions = dictionary.function_table
        lines = dictionary.location_table[location].lines
        return [strings[functions[line.function_index].name_strindex] for line in lines]

    stack = dictionary.stack_table[of.stack_index]
    named = [dictionary.attribute_table[index] for index in of.attribute_indices]
    return {
        "stack": [name for location in stack.location_indices for name in frames(location)],
        "attributes": {strings[pair.key_strindex]: value(pair.value) for pair in named},
        "value": sum(of.values),
    }


def of_profiles(body):
    request = profiles.ExportProfilesServiceRequest.FromString(body)
    dictionary = request.dictionary
    check_dictionary(dictionary)
    resources = []
    for resource in request.resource_profiles:
        found = {}
        for scope in resource.scope_profiles:
            for one in scope.profiles:
                identities = [(s.stack_index, tuple(s.attribute_indices)) for s in one.samples]
                assert len(set(identities)) == len(identities), "samples that are one"
                name = dictionary.string_table[one.sample_type.type_strindex]
                found[name] = {
                    "unit": dictionary.string_table[one.sample_type.unit_strindex],
                    "time": one.time_unix_nano,
                    "duration": one.duration_nano,
                    "samples": [sample(s, dictionary) for s in one.samples],
                }
        resources.append({"attributes": attributes(resource.resource.attributes), "profiles": found})
    return resources


DECODERS = {"/v1/metrics": of_metrics, "/v1development/profiles": of_profiles}


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/x-protobuf"
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        status = STATUSES.pop(0) if STATUSES else 200
        if status == 200:
            print(json.dumps({"path": self.path, "resources": DECODERS[self.path](body)}), flush=True)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if status == 503:
            self.send_header("Retry-After", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Server(HTTPServer):
    def handle_error(self, request, client_address):
        # The test can end the sender at any time.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


server = Server(("127.0.0.1", int(sys.argv[1])), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
