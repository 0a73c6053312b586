//! Calls of each kind in a scope of malloc-tag, names that have to be escaped, 192 more scopes; a
//! signal handler writes the statistics, at a point where the program is in a scope.
//
// Known: the scope `calls` has 3 calls of malloc, 2 of realloc (one without a block), 5 of calloc
// and of functions for aligned blocks that malloc-tag counts like calloc, and 3 of free, of a null
// pointer and of 24 and 40 usable bytes (glibc). Each inner scope of `wide` has one block of 40
// bytes. write_stats() fails for a directory, and leaves errno unchanged.
#include "malloc_tag.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

static volatile std::uintptr_t sink;
static volatile std::sig_atomic_t written, kept;

static void *keep(void *block)
{
    sink = reinterpret_cast<std::uintptr_t>(block);
    return block;
}

static void on_signal(int)
{
    const int before = errno;
    errno = 1234;
    written = MallocTagEngine::write_stats();
    kept = errno == 1234;
    errno = before;
}

static void calls()
{
    MallocTagScope scope("calls");
    void *small = keep(std::malloc(10));
    void *grown = keep(std::realloc(keep(std::malloc(1000)), 2000));
    keep(std::realloc(nullptr, 10));
    keep(std::malloc(10));
    for (int i = 0; i < 3; i++)
        keep(std::calloc(4, 8));
    void *aligned = nullptr;
    if (::posix_memalign(&aligned, 64, 640) != 0)
        std::abort();
    keep(aligned);
    void *zeroed = keep(::memalign(16, 40));
    std::free(small);
    void *volatile nothing = nullptr;
    std::free(nothing);
    std::free(zeroed);
    keep(grown);
}

static void wide()
{
    MallocTagScope scope("wide");
    char name[32];
    for (int outer = 0; outer < 12; outer++) {
        std::snprintf(name, sizeof name, "outer%d", outer);
        MallocTagScope around(name);
        for (int inner = 0; inner < 15; inner++) {
            std::snprintf(name, sizeof name, "inner%d", inner);
            MallocTagScope inside(name);
            keep(std::malloc(40));
        }
    }
}

int main()
{
    if (!MallocTagEngine::init())
        return std::puts("bare") < 0;
    std::signal(SIGUSR1, on_signal);
    calls();
    wide();
    {
        MallocTagScope scope("quote\"line\nbackslash\\");
        keep(std::malloc(10));
    }
    {
        MallocTagScope scope("in the handler");
        keep(std::malloc(10));
        std::raise(SIGUSR1);
    }
    // The first call of a child frees a null pointer.
    const pid_t child = ::fork();
    if (child == 0) {
        void *volatile nothing = nullptr;
        std::free(nothing);
        ::_exit(0);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    if (status != 0)
        std::abort();
    errno = 77;
    const bool directory = MallocTagEngine::write_stats(MTAG_OUTPUT_FORMAT_JSON, "nonexistent/x");
    const int after = errno;
    const bool all = MallocTagEngine::collect_stats(MTAG_OUTPUT_FORMAT_JSON).empty();
    std::printf("%d %d %d %d %d\n", static_cast<int>(written), static_cast<int>(kept), directory,
                all, after == 77);
    return 0;
}
