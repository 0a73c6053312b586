//! Memory of a runtime's own heap beside other memory, by the names of the runtimes' functions.
//! `go`: Go maps 8 MiB, and `image` has 4 MiB. `gcc`: `make_node` has 8 MiB that GCC's collector
//! maps. `r` and `ocaml`: 4 MiB that the runtime takes from malloc, for `fill` in OCaml. `beside`:
//! `rows` has 16 MiB, and LuaJIT maps 8 MiB.
//
// build: -pthread
#include "guest.h"
#include <pthread.h>
#include <sys/mman.h>

enum { MIB = 1 << 20 };

static void *volatile kept[2];

// Maps memory and writes to it. Huge pages would make more of it resident.
#define PAGES(bytes)                                                                     \
    __extension__({                                                                      \
        int flags = MAP_PRIVATE | MAP_ANONYMOUS;                                         \
        char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);          \
        CHECK(memory != MAP_FAILED && madvise(memory, bytes, MADV_NOHUGEPAGE) == 0);     \
        memset(memory, 1, bytes);                                                        \
    })

NOINLINE void *go_map(void) __asm__("runtime.mmap");
NOINLINE void *go_map(void)
{
    return PAGES(8 * MIB);
}

NOINLINE void *go_thread(void *unused) __asm__("runtime.mstart");
NOINLINE void *go_thread(void *unused)
{
    kept[0] = go_map();
    stay();
    return unused;
}

static NOINLINE char *image(void)
{
    char *memory = memset(malloc(4 * MIB), 1, 4 * MIB);
    stay();
    return memory;
}

static void go(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, go_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    kept[1] = image();
}

NOINLINE void *ggc_internal_alloc(void)
{
    return PAGES(8 * MIB);
}

NOINLINE void *make_node(void)
{
    void *memory = ggc_internal_alloc();
    stay();
    return memory;
}

NOINLINE void *Rf_allocVector3(void)
{
    void *memory = memset(malloc(4 * MIB), 1, 4 * MIB);
    stay();
    return memory;
}

NOINLINE void *caml_alloc_for_heap(void)
{
    void *memory = memset(malloc(4 * MIB), 1, 4 * MIB);
    stay();
    return memory;
}

static NOINLINE void *fill(void)
{
    void *memory = caml_alloc_for_heap();
    stay();
    return memory;
}

NOINLINE void *lj_alloc_create(void)
{
    return PAGES(8 * MIB);
}

static NOINLINE void *rows(void)
{
    void *memory = memset(malloc(16 * MIB), 1, 16 * MIB);
    stay();
    return memory;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "go";
    if (strcmp(kind, "go") == 0) {
        go();
    } else if (strcmp(kind, "gcc") == 0) {
        kept[0] = make_node();
    } else if (strcmp(kind, "r") == 0) {
        kept[0] = Rf_allocVector3();
    } else if (strcmp(kind, "ocaml") == 0) {
        kept[0] = fill();
    } else {
        CHECK(strcmp(kind, "beside") == 0);
        kept[0] = rows();
        kept[1] = lj_alloc_create();
    }
    return 0;
}
