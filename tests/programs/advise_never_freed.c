//! `heaptide advise`: the program leaks one block per request and frees all others. With -DALIKE it
//! keeps the blocks in use until it ends, and does not free them.
//
//   open_session  1000 blocks of 200 bytes that are never freed
//   read_request  1000 blocks of 100,000 bytes
#include "api_guest.h"

enum { REQUESTS = 1000 };

static NOINLINE void *open_session(void) { return keep(malloc(200)); }
static NOINLINE void *read_request(void) { return keep(memset(malloc(100000), 1, 100000)); }

int main(void)
{
    static void *kept[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        heaptide_begin_string("phase", "request");
        void *session = open_session(), *request = read_request();
        keep(session);
#ifdef ALIKE
        kept[i] = request;
#else
        free(request);
#endif
        heaptide_end_string("phase", "request");
    }
    keep(kept[0]);
    return 0;
}
