//! A library whose symbol tables are no longer mapped, while it is still in the loader's list: the
//! state in which another thread that unloads a library leaves it for a moment. The recorder
//! accounts for resident memory without a search for symbols, and finds functions that are called
//! for the first time in the libraries with which the program was started. A child that is forked
//! in that moment searches nothing.
//
// expect function:hold allocations=1 requested_bytes=8000000 live_blocks=1
// expect function:in_child allocations=3 requested_bytes=300 live_blocks=3
// expect function:call_more allocations=5 frees=5 requested_bytes=5000
// plugin: half_unloaded_plugin.so plugin.c -DWORK=unused_work
// build: -ldl -pthread
// args: %/half_unloaded_plugin.so
#include "guest.h"
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

static NOINLINE void *hold(void) { return memset(keep(malloc(8000000)), 1, 8000000); }

static void *return_it(void *argument) { return argument; }

// Calls functions that nothing has called before.
static NOINLINE void call_more(void)
{
    void *block = NULL;
    free(keep(memalign(64, 1000)));
    free(keep(aligned_alloc(64, 1000)));
    free(keep(reallocarray(NULL, 10, 100)));
    free(keep(valloc(1000)));
    CHECK(posix_memalign(&block, 64, 1000) == 0);
    free(block);
    void *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED && munmap(mapped, 4096) == 0);
}

static void call_thread(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, return_it, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

// Unmaps the first segment of the plug-in, which has its tables of symbols and no code.
static int unmap_tables(struct dl_phdr_info *info, size_t size, void *wanted)
{
    (void)size;
    if (!strstr(info->dlpi_name, (const char *)wanted))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD)
            continue;
        CHECK(segment->p_flags == PF_R);
        CHECK(munmap((void *)info->dlpi_addr, segment->p_memsz) == 0);
        return 1;
    }
    return 0;
}

static NOINLINE void in_child(void)
{
    for (int i = 0; i < 3; i++)
        memset(keep(malloc(100)), 1, 100);
}

// Forks while the loader's list is marked as being changed, as by another thread in dlclose.
static void fork_now(void)
{
    _r_debug.r_state = RT_DELETE;
    pid_t child = fork();
    if (child == 0) {
        in_child();
        _exit(0);
    }
    _r_debug.r_state = RT_CONSISTENT;
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **words)
{
    CHECK(count == 2);
    CHECK(dlopen(words[1], RTLD_NOW) != NULL);
    CHECK(dl_iterate_phdr(unmap_tables, (void *)"half_unloaded_plugin.so") == 1);
    call_more();
    hold();
    call_thread();
    fork_now();
    return 0;
}
