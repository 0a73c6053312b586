//! Names that the parent looked up stay valid in a forked child: those cached in the source, and
//! those in variables.
//
// expect scope:in_child requested_bytes=10 entered=1
// expect scope:before requested_bytes=30 entered=1
// expect scope:parent>in_child requested_bytes=40 entered=2
#include "api_guest.h"
#include <sys/wait.h>

static void in_scope(size_t size, size_t so_far)
{
    HEAPTIDE_BEGIN("in_child");
    free(block(size));
    KNOWN(own(heaptide_context()).requested_bytes == so_far);
    HEAPTIDE_END("in_child");
}

// The child starts outside of all scopes; ending a scope of its parent has no effect.
static void in_child(uint32_t before)
{
    KNOWN(heaptide_recording());
    in_scope(10, 10);
    KNOWN(heaptide_name("before") == before);
    heaptide_scope_begin(before);
    free(block(30));
    KNOWN(own(heaptide_context()).requested_bytes == 30);
    heaptide_scope_end(before);
    heaptide_end("parent");
    KNOWN(heaptide_context() == 0);
}

int main(void)
{
    uint32_t before = heaptide_name("before");
    pid_t child;
    int status;
    heaptide_begin("parent");
    in_scope(20, 20);
    child = fork();
    if (child == 0) {
        in_child(before);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    in_scope(20, 40);
    heaptide_end("parent");
    KNOWN(heaptide_context() == 0);
    say("forked\n");
    return 0;
}
