//! The file size limit is reached while scopes and labels are recorded: the program's behaviour
//! does not change, unrecorded scopes are charged to the enclosing one, and no allocation is lost.
//
// expect totals allocations=40000 frees=30000 requested_bytes=600000
// losses: allowed
#include "api_guest.h"
#include <errno.h>
#include <sys/resource.h>

enum { SCOPES = 20000, LIMIT = 600000 };

int main(void)
{
    struct rlimit limit = {LIMIT, LIMIT};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    errno = 77;
    for (int i = 0; i < SCOPES; i++) {
        char name[32];
        snprintf(name, sizeof name, "scope %d", i);
        heaptide_begin(name);
        free(keep(malloc(10)));
        void *block = keep(malloc(20));
        heaptide_label_block(block, name);
        if (i % 2)
            free(block);
        heaptide_end(name);
        KNOWN(heaptide_context() == 0);
    }
    CHECK(errno == 77);
    KNOWN(heaptide_process_figures().live_blocks == SCOPES / 2);
    return 0;
}
