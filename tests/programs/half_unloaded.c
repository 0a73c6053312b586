//! A library whose symbol tables are no longer mapped, while it is still in the loader's list: the
//! state in which another thread that unloads a library leaves it for a moment. The recorder
//! accounts for resident memory without a search for symbols, so it does not read them.
//
// expect function:hold allocations=1 requested_bytes=8000000 live_blocks=1
// plugin: half_unloaded_plugin.so plugin.c -DWORK=unused_work
// build: -ldl
// args: %/half_unloaded_plugin.so
#include "guest.h"
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

static NOINLINE void *hold(void) { return memset(keep(malloc(8000000)), 1, 8000000); }

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

int main(int count, char **words)
{
    CHECK(count == 2);
    CHECK(dlopen(words[1], RTLD_NOW) != NULL);
    CHECK(dl_iterate_phdr(unmap_tables, (void *)"half_unloaded_plugin.so") == 1);
    hold();
    return 0;
}
