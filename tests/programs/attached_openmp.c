//! Threads of OpenMP in a program that a command attaches to. Performs a step for each byte that it
//! reads, and echoes the byte.
//
//   o: a region outside of all scopes, in which each of 4 threads allocates 100 bytes
//   i: a region in the scope `loop`, in which they allocate 1000 bytes each, and the first one
//      performs steps until it reads `e`
//
// `o`, attach, `i`, detach, `eo`, attach, `ie`, detach makes two recordings, each with 4
// allocations of 1000 bytes in `loop`.
//
// build: -fopenmp -ldl
#include "guest.h"
#include <dlfcn.h>
#include <link.h>

static int find_recorder(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    if (strstr(info->dlpi_name, "/libheaptide") != NULL)
        *(const char **)found = info->dlpi_name;
    return 0;
}

// Returns a function of the recorder. The headers find one that was there at the start only.
static void *recorder(const char *name)
{
    const char *path = NULL;
    dl_iterate_phdr(find_recorder, &path);
    CHECK(path != NULL);
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    CHECK(library != NULL);
    return dlsym(library, name);
}

static void begin(const char *name)
{
    void (*scope)(const char *, size_t, const char *, size_t) =
        (void (*)(const char *, size_t, const char *, size_t))recorder(
            "heaptide_scope_begin_named");
    CHECK(scope != NULL);
    scope(NULL, 0, name, strlen(name));
}

static void end(void)
{
    void (*scope)(uint32_t) = (void (*)(uint32_t))recorder("heaptide_scope_end");
    CHECK(scope != NULL);
    scope(0);
}

static NOINLINE void *outside(void) { return keep(malloc(100)); }
static NOINLINE void *inside(void) { return keep(malloc(1000)); }

static char answered(void)
{
    char step;
    if (read(0, &step, 1) != 1)
        _exit(0);
    CHECK(write(1, &step, 1) == 1);
    return step;
}

static void region_outside(void)
{
#pragma omp parallel num_threads(4)
    free(outside());
}

static void region_inside(void)
{
    begin("loop");
#pragma omp parallel num_threads(4)
    {
        free(inside());
#pragma omp barrier
#pragma omp master
        {
            CHECK(write(1, "i", 1) == 1);
            while (answered() != 'e')
                ;
        }
    }
    end();
}

int main(void)
{
    char step;
    CHECK(write(1, "r", 1) == 1);
    while (read(0, &step, 1) == 1) {
        if (step == 'i') {
            region_inside();
            continue;
        }
        if (step == 'o')
            region_outside();
        CHECK(write(1, &step, 1) == 1);
    }
    return 0;
}
