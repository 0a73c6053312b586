//! `heaptide advise`: each request leaves a session behind, in a service that is killed. With
//! -DALIKE the sessions are a table of 16, and each request replaces one.
//
//   open_session  1000 blocks of 2000 bytes, one per request
//   read_request  1000 blocks of 100,000 bytes, freed by their request
#include "api_guest.h"
#include <signal.h>

enum { REQUESTS = 1000, SESSIONS = 16 };

static NOINLINE void *open_session(void) { return keep(malloc(2000)); }
static NOINLINE void *read_request(void) { return keep(malloc(100000)); }

int main(void)
{
    static void *sessions[SESSIONS];
    for (int i = 0; i < REQUESTS; i++) {
        heaptide_begin_string("phase", "request");
        void *session = open_session(), *request = read_request();
#ifdef ALIKE
        free(sessions[i % SESSIONS]);
#endif
        sessions[i % SESSIONS] = session;
        free(request);
        heaptide_end_string("phase", "request");
    }
    keep(sessions[0]);
    raise(SIGKILL);
    return 0;
}
