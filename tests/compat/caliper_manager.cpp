//! Configurations that a program starts itself, based on an argument, like programs with `-P`.
//
// `solve` makes 4 allocations of 1000 bytes, of which 2 are live at once.
#include <caliper/cali-manager.h>
#include <caliper/cali.h>

#include "../programs/guest.h"

#include <iostream>
#include <sys/wait.h>

static NOINLINE void solve()
{
    CALI_CXX_MARK_FUNCTION;
    void *before = nullptr;
    for (int i = 0; i < 4; i++) {
        void *block = keep(malloc(1000));
        free(before);
        before = block;
    }
    free(before);
}

int main(int argc, char **argv)
{
    cali::ConfigManager manager;
    manager.add(argc > 1 ? argv[1] : "");
    if (manager.error()) {
        std::cerr << manager.error_msg() << "\n";
        return 1;
    }
    manager.start();
    solve();
    manager.flush();
    fflush(nullptr);
    const pid_t child = fork();
    if (!child)
        exit(0); // a child does not report
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
