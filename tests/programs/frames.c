//! All kinds of frames that a C compiler creates: alloca, variable-length arrays, realigned stacks,
//! saved registers.
//
// expect function:main>alone>with_alloca>leaf_of allocations=200
// expect function:main>alone>with_array>leaf_of allocations=200
// expect function:main>alone>realigned>leaf_of allocations=200
// expect function:main>alone>realigned_alloca>leaf_of allocations=200
// expect function:main>alone>many_registers>leaf_of allocations=200
// expect function:main>mixed>leaf_of allocations=400
// expect function:main>through_qsort>compared>leaf_of allocations>=5
// expect function:leaf_of requested_bytes>=14000
#include "guest.h"
#include <alloca.h>

typedef void *shape(int depth);

static NOINLINE void *leaf_of(void) { return keep(malloc(10)); }

static NOINLINE void *with_alloca(int depth)
{
    volatile char *room = (volatile char *)alloca((size_t)(depth * 24 + 8));
    room[depth] = 1;
    return depth ? keep(with_alloca(depth - 1)) : keep(leaf_of());
}
static NOINLINE void *with_array(int depth)
{
    volatile int room[depth * 3 + 1];
    room[depth] = 1;
    CHECK(room[depth] == 1);
    return depth ? keep(with_array(depth - 1)) : keep(leaf_of());
}
static NOINLINE void *realigned(int depth)
{
    volatile char room[64] __attribute__((aligned(64)));
    room[depth % 64] = 1;
    CHECK((uintptr_t)room % 64 == 0);
    return depth ? keep(realigned(depth - 1)) : keep(leaf_of());
}
static NOINLINE void *realigned_alloca(int depth)
{
    volatile char room[128] __attribute__((aligned(128)));
    volatile char *more = (volatile char *)alloca((size_t)(depth * 40 + 8));
    room[depth % 64] = more[depth] = 1;
    CHECK((uintptr_t)room % 128 == 0);
    return depth ? keep(realigned_alloca(depth - 1)) : keep(leaf_of());
}
static NOINLINE void *many_registers(int depth)
{
    long a = depth, b = a * 3, c = b ^ 5, d = c + a, e = d * 7, f = e - b;
    void *p = depth ? keep(many_registers(depth - 1)) : keep(leaf_of());
    CHECK((a ^ b ^ c ^ d ^ e ^ f) == (a ^ (a * 3) ^ c ^ (c + a) ^ (d * 7) ^ (e - b)));
    return p;
}
static NOINLINE void *mixed(int depth)
{
    static shape *const all[] = {with_alloca, realigned, many_registers, realigned_alloca,
                                 with_array};
    volatile char room[32] __attribute__((aligned(32)));
    room[0] = 1;
    CHECK(room[0] == 1);
    return depth > 3 ? keep(mixed(depth - 1)) : keep(all[depth](depth));
}
static int compared(const void *a, const void *b)
{
    free(leaf_of());
    return *(const int *)a - *(const int *)b;
}
static NOINLINE void through_qsort(void)
{
    int numbers[] = {5, 3, 9, 1, 7};
    qsort(numbers, 5, sizeof *numbers, compared);
    CHECK(numbers[0] == 1 && numbers[4] == 9);
}

static NOINLINE void alone(void)
{
    static shape *const all[] = {with_alloca, with_array, realigned, realigned_alloca,
                                 many_registers};
    for (int i = 0; i < 200; i++)
        for (int k = 0; k < 5; k++)
            free(all[k](i % 37));
}

int main(void)
{
    alone();
    for (int i = 0; i < 400; i++)
        free(mixed(i % 23));
    through_qsort();
    say("all shapes\n");
    return 0;
}
