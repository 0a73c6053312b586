//! A static program at a fixed address: it has no loader, so the command puts the recorder into it.
//
// expect recording processes=2
// expect function:in_main allocations=1000 frees=1000 requested_bytes=499500
// expect function:zeroed allocations=50 live_blocks=50 requested_bytes=50000
// expect function:grown allocations=50 live_blocks=50 requested_bytes=250000
// expect function:aligned allocations=50 frees=50 requested_bytes=15000
// expect function:in_thread allocations=20004 frees=20000 live_blocks=4 requested_bytes=1280280
// expect function:in_child allocations=500 live_blocks=500 requested_bytes=20000
// build: -static -no-pie -pthread
#include "static_work.h"
