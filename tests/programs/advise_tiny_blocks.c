//! `heaptide advise`: very many tiny blocks. With -DALIKE the blocks are large.
//
// clock: set
//   add_node  100,000 blocks of 16 bytes, with -DALIKE of 104
#include "clock.h"

enum { NODES = 100000 };
#ifdef ALIKE
enum { BYTES = 104 };
#else
enum { BYTES = 16 };
#endif

static NOINLINE void *add_node(void) { return keep(malloc(BYTES)); }

int main(void)
{
    static void *nodes[NODES];
    for (int i = 0; i < NODES; i++)
        nodes[i] = add_node();
    for (int i = 0; i < NODES; i++)
        free(nodes[i]);
    pass_us(60000); // the account that identifies the allocator is taken at the end
    return 0;
}
