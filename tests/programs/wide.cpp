//! A function with 500 different callees, each a child of one node of the stack tree.
//
// expect function:main>hub allocations=5000 frees=5000 requested_bytes=1247500
// expect leaf:hub allocations=0
#include "guest.h"
#include <utility>

template <size_t N> static NOINLINE void *leaf() { return keep(malloc(N)); }

template <size_t... N>
__attribute__((always_inline)) static inline void all(std::index_sequence<N...>)
{
    (free(leaf<N>()), ...);
}
static NOINLINE void hub() { all(std::make_index_sequence<500>{}); stay(); }

int main()
{
    for (int i = 0; i < 10; i++)
        hub();
    say("wide\n");
    return 0;
}
