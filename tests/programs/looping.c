//! Allocates and frees forever, and counts started and finished operations in a shared page.
//
// Words of the page: allocations started and finished, frees started and finished. The test kills
// it.
#include "guest.h"
#include <fcntl.h>
#include <sys/mman.h>

enum { WINDOW = 64 };
static volatile uint64_t *page;

static NOINLINE void *operation(unsigned i) { return keep(branch(i * 2654435761u, 11, i % 500)); }

int main(int count, char **words)
{
    CHECK(count == 2);
    int fd = open(words[1], O_RDWR);
    page = (volatile uint64_t *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED);
    void *window[WINDOW] = {NULL};
    for (unsigned i = 0;; i++) {
        if (window[i % WINDOW]) {
            page[2]++;
            free(window[i % WINDOW]);
            page[3]++;
        }
        page[0]++;
        window[i % WINDOW] = operation(i);
        page[1]++;
    }
}
