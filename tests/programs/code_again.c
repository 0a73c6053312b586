//! Code of the program that it maps again and executes there, like V8's builtin functions: stacks
//! have their names, and continue through them.
//
// build: -fno-omit-frame-pointer
// expect function:main>called>again allocations=10 requested_bytes=1000
// expect leaf:again allocations=10
// expect depth:again count=1
#include "guest.h"
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>

typedef void *(*allocator)(void *(*)(size_t), size_t);

// Depends only on its arguments, so it works at any address.
static NOINLINE void *again(void *(*allocate)(size_t), size_t size)
{
    void *block = allocate(size);
    stay();
    return block;
}

static NOINLINE void called(allocator code) { free(keep(code(malloc, 100))); stay(); }

// Maps the executable segment of the program again at another address.
static int map_again(struct dl_phdr_info *program, size_t size, void *made)
{
    (void)size;
    int file = open("/proc/self/exe", O_RDONLY);
    CHECK(file >= 0);
    for (int i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &program->dlpi_phdr[i];
        uintptr_t address = program->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
            continue;
        size_t before = segment->p_offset % 4096;
        char *copy = mmap(NULL, segment->p_filesz + before, PROT_READ | PROT_EXEC, MAP_PRIVATE,
                          file, (off_t)(segment->p_offset - before));
        CHECK(copy != MAP_FAILED);
        *(allocator *)made = (allocator)(copy + before + ((uintptr_t)again - address));
    }
    close(file);
    return 1;
}

int main(void)
{
    allocator copy = NULL;
    dl_iterate_phdr(map_again, &copy);
    CHECK(copy != NULL);
    for (int i = 0; i < 10; i++)
        called(copy);
    say("called again\n");
    return 0;
}
