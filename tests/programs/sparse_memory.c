// Maps far more memory than it writes, prints "ready", and at the end of its input the bytes that
// its shared memory has: a search that read all of it would have made its pages.
//
//   memory                                written         blocks that only it refers to
//   private, 64 GiB without reservation   2 pages         2 of 1,000 bytes (1,000 usable)
//   shared, 4 GiB                         1 page (4096)   1 of 2,000 bytes (2,008 usable)
//   a block of 8 GiB                      1 page          1 of 3,000 bytes (3,000 usable)

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GIB (1ul << 30)

static void *block;

int main(void) {
    const int rights = PROT_READ | PROT_WRITE;
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *private = mmap(NULL, 64 * GIB, rights, kind, -1, 0);
    const int file = memfd_create("sparse", MFD_CLOEXEC);
    if (private == MAP_FAILED || file < 0 || ftruncate(file, 4 * GIB) != 0)
        return 1;
    char *shared = mmap(NULL, 4 * GIB, rights, MAP_SHARED, file, 0);
    block = malloc(8 * GIB);
    if (shared == MAP_FAILED || !block)
        return 1;
    *(void **)private = malloc(1000);
    *(void **)(private + 64 * GIB - 64) = malloc(1000);
    *(void **)(shared + 2 * GIB) = malloc(2000);
    *(void **)((char *)block + 4 * GIB) = malloc(3000);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    struct stat status;
    if (fstat(file, &status) != 0)
        return 1;
    printf("%ld\n", (long)status.st_blocks * 512);
    return 0;
}
