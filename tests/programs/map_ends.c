//! Writes to 50 MB that it has mapped, and ends at once: by SIGKILL, or by exec of `true`.
#include "guest.h"
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

static NOINLINE char *mapped(size_t bytes)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(int count, char **words)
{
    CHECK(count == 2);
    keep(malloc(1000));
    char *start = mapped(50000000);
    CHECK(start != MAP_FAILED);
    memset(start, 1, 50000000);
    if (!strcmp(words[1], "exec"))
        execlp("true", "true", NULL);
    raise(SIGKILL);
    return 1;
}
