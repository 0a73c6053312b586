//! Services under a short load.

use super::program::{Load, Program};

/// 300 requests, one after the other, in three seconds or more.
const REQUESTS: &str = "python3 - <<'END'
import time, urllib.request
for i in range(300):
    urllib.request.urlopen(f'http://127.0.0.1:PORT/{i}').read()
    time.sleep(0.01)
END";

/// An application that keeps 50 KB for each path.
const APPLICATION: &str = r#"cat > app.py <<'END'
cache = {}
def remember(path):
    cache[path] = [str(i) * 10 for i in range(500)]
    return len(cache)
def application(environ, start):
    n = remember(environ["PATH_INFO"])
    start("200 OK", [("Content-Type", "text/plain")])
    return [str(n).encode()]
END
"#;

pub const PROGRAMS: [Program; 10] = [
    Program {
        name: "redis",
        needs: &["redis-server", "redis-cli"],
        packages: "redis-server",
        prepare: "",
        command: "redis-server --port 7601 --save '' --daemonize no",
        load: Some(Load {
            port: 7601,
            user: None,
            script: "redis-cli -p 7601 debug populate 100000 key 100 || true
python3 - <<'END' | redis-cli -p 7601 --pipe
import sys, time
for i in range(100000):
    sys.stdout.write(f'SET key:{i} {\"v\" * 100}\\r\\n')
    if i % 1000 == 0:
        sys.stdout.flush()
        time.sleep(0.03)
END",
        }),
        right: "the values of SET, about 15 to 20 MiB for 100,000 keys, by redis' object code; \
                growing during the load",
    },
    Program {
        name: "nginx",
        needs: &["nginx"],
        packages: "nginx-light",
        prepare: r#"mkdir -p logs; cat > nginx.conf <<'END'
daemon off; worker_processes 2; pid nginx.pid; error_log stderr;
events { worker_connections 4096; }
http { access_log off; client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3;
uwsgi_temp_path t4; scgi_temp_path t5;
server { listen 7602; location / { return 200 "ok"; } } }
END
"#,
        command: "nginx -p . -c nginx.conf",
        load: Some(Load { port: 7602, script: REQUESTS, user: None }),
        right: "two workers of one program, with their connections (`ngx_event_process_init`), \
                about 2 MiB in each",
    },
    Program {
        name: "postgres",
        needs: &["initdb", "postgres", "psql"],
        packages: "postgresql-15",
        prepare: "as_user='setpriv --reuid postgres --regid postgres --clear-groups'
rm -rf data; mkdir data; [ $(id -u) = 0 ] && chown postgres . data || as_user=
$as_user initdb -D data -A trust > initdb.log",
        command: "postgres -D data -p 7603 -k .",
        load: Some(Load {
            port: 7603,
            user: Some("postgres"),
            script: "psql -h 127.0.0.1 -p 7603 -U postgres -c \"set work_mem = '64MB'; \
                     select count(*) from (select g, md5(g::text) from generate_series(1, 200000) \
                     g order by 2) s\" postgres",
        }),
        right: "the backend of the query: its sort, about 25 MiB; shared buffers apart from it",
    },
    Program {
        name: "memcached",
        needs: &["memcached"],
        packages: "memcached",
        prepare: "",
        command: "memcached -u nobody -p 7604 -U 0 -m 64",
        load: Some(Load {
            port: 7604,
            user: None,
            script: r#"python3 - <<'END'
import socket
s = socket.create_connection(("127.0.0.1", 7604))
for i in range(20000):
    s.sendall(b"set k%d 0 0 1000 noreply\r\n%s\r\n" % (i, b"v" * 1000))
s.sendall(b"version\r\n")
s.recv(100)
END"#,
        }),
        right: "slab pages by memcached's slab code, about 24 MiB, beside buffers and the hash \
                table",
    },
    Program {
        name: "http.server",
        needs: &["python3"],
        packages: "python3",
        prepare: r#"cat > server.py <<'END'
import http.server
cache = {}
def remember(path):
    cache[path] = [str(i) * 10 for i in range(500)]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        remember(self.path)
        self.send_response(200)
        self.end_headers()
    def log_message(self, *a):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", 7605), Handler).serve_forever()
END
"#,
        command: "python3 server.py",
        load: Some(Load { port: 7605, script: REQUESTS, user: None }),
        right: "`remember` of server.py, about 12 MiB after 300 requests, growing with each",
    },
    Program {
        name: "gunicorn",
        needs: &["gunicorn"],
        packages: "pip:gunicorn",
        prepare: APPLICATION,
        command: "gunicorn -w 2 -b 127.0.0.1:7606 --no-control-socket app:application",
        load: Some(Load { port: 7606, script: REQUESTS, user: None }),
        right: "two workers of one program, with `remember` of app.py first, 12 MiB in both \
                together",
    },
    Program {
        name: "mosquitto",
        needs: &["mosquitto", "mosquitto_pub"],
        packages: "mosquitto mosquitto-clients",
        prepare: "",
        command: "mosquitto -p 7607",
        load: Some(Load {
            port: 7607,
            user: None,
            script: "for i in $(seq 20); do head -c 200000 /dev/zero | tr '\\0' x | mosquitto_pub \
                     -p 7607 -r -t t/$i -s; done",
        }),
        right: "20 retained messages of 200 KB each, about 4 MB",
    },
    Program {
        name: "haproxy",
        needs: &["haproxy"],
        packages: "haproxy",
        prepare: r#"cat > haproxy.cfg <<'END'
global
  maxconn 500
defaults
  mode http
  timeout client 5s
  timeout connect 5s
  timeout server 5s
frontend f
  bind 127.0.0.1:7608
  http-request return status 200
END
"#,
        command: "haproxy -f haproxy.cfg",
        load: Some(Load { port: 7608, script: REQUESTS, user: None }),
        right: "tables of haproxy's start (file descriptors, pools, rings), some MiB",
    },
    Program {
        name: "C++ server",
        needs: &["g++"],
        packages: "g++",
        prepare: r#"cat > store.cpp <<'END'
#include <map>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
struct ResponseCache {
    std::map<std::string, std::string> entries;
    void put(const std::string &key) { entries[key] = std::string(50000, 'x'); }
};
int main()
{
    ResponseCache cache;
    int s = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(7609);
    bind(s, (sockaddr *)&a, sizeof a);
    listen(s, 100);
    for (int c; (c = accept(s, nullptr, nullptr)) >= 0; close(c)) {
        char b[4096];
        ssize_t n = read(c, b, sizeof b);
        if (n > 0) cache.put(std::string(b, n));
        const char r[] = "HTTP/1.0 200 OK\r\n\r\nok";
        if (write(c, r, sizeof r - 1) < 0) break;
    }
}
END
g++ -g -O1 store.cpp -o store
"#,
        command: "./store",
        load: Some(Load { port: 7609, script: REQUESTS, user: None }),
        right: "`ResponseCache::put`, about 14 MiB after 300 requests, growing with each",
    },
    Program {
        name: "uwsgi",
        needs: &["uwsgi"],
        packages: "uwsgi-core uwsgi-plugin-python3",
        prepare: APPLICATION,
        command: "uwsgi --plugin http,python3 --http 127.0.0.1:7610 --wsgi-file app.py --master \
                  --processes 2 --die-on-term",
        load: Some(Load { port: 7610, script: REQUESTS, user: None }),
        right: "two workers of one program, with `remember` of app.py first, 12 MiB in both \
                together",
    },
];
