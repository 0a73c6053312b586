//! The calls of a monitor for each allocation function of C and C++: the requested size once, and
//! as many usable bytes freed as allocated.
//
// expect totals allocations>=20
// build: -std=c++17
#include "api_guest.h"

struct alignas(512) Aligned { int value; };

static std::size_t requested, calls, frees;
static std::ptrdiff_t present, highest;

class Present : public heaptide::Monitor {
public:
    void allocated(void *block, std::size_t bytes, std::size_t usable) override
    {
        CHECK(usable >= bytes && usable == malloc_usable_size(block));
        requested += bytes;
        calls++;
        present += static_cast<std::ptrdiff_t>(usable);
        highest = present > highest ? present : highest;
    }
    void freed(void *block, std::size_t usable) override
    {
        CHECK(usable == malloc_usable_size(block));
        present -= static_cast<std::ptrdiff_t>(usable);
        frees++;
    }
};

// One allocation of `bytes` was made and freed since the last check.
static void made(std::size_t bytes)
{
    KNOWN(requested == bytes && calls == 1 && frees == 1 && present == 0);
    requested = calls = frees = 0;
    highest = 0;
}

static void operators()
{
    const std::align_val_t al{64};
    delete keep(new int(1)), made(4);
    delete[] keep(new int[5]), made(20);
    delete keep(new Aligned{1}), made(512);
    delete[] keep(new Aligned[5]), made(2560);
    ::operator delete(keep(::operator new(12)), 12), made(12);
    ::operator delete[](keep(::operator new[](12)), 12), made(12);
    ::operator delete(keep(::operator new(12, std::nothrow)), std::nothrow), made(12);
    ::operator delete[](keep(::operator new[](12, std::nothrow)), std::nothrow), made(12);
    ::operator delete(keep(::operator new(12, al)), 12, al), made(12);
    ::operator delete[](keep(::operator new[](12, al, std::nothrow)), al), made(12);
}

static void functions()
{
    void *p = nullptr;
    free(keep(malloc(50))), made(50);
    free(keep(calloc(12, 1))), made(12);
    free(keep(aligned_alloc(128, 384))), made(384);
    free(keep(memalign(256, 24))), made(24);
    CHECK(posix_memalign(&p, 128, 64) == 0);
    free(keep(p)), made(64);
    free(keep(valloc(100))), made(100);
    free(keep(reallocarray(nullptr, 10, 3))), made(30);
    free(keep(realloc(nullptr, 31))), made(31);
    free(nullptr);
    const std::size_t huge = keep((std::size_t)-1 / 4);
    CHECK(keep(calloc(huge, 16)) == nullptr && keep(malloc(huge)) == nullptr);
    KNOWN(calls == 0 && frees == 0);
}

// Moved: the new block is reported before the old one is freed. In place: the old size is freed
// first.
static void reallocations()
{
    void *p = keep(malloc(50)), *old = p;
    const std::ptrdiff_t before = present;
    highest = 0;
    p = keep(realloc(p, 100000));
    KNOWN(requested == 100050 && calls == 2 && frees == 1);
    KNOWN(present == (std::ptrdiff_t)malloc_usable_size(p));
    KNOWN(highest == present + (p == old ? 0 : before));
    CHECK(keep(realloc(p, keep((std::size_t)-1 / 4))) == nullptr);
    KNOWN(calls == 2 && frees == 1);
    free(p);
    KNOWN(present == 0 && frees == 2);
    requested = calls = frees = 0;
}

int main()
{
    Present *monitor = nullptr;
    if (heaptide::loaded())
        monitor = heaptide::create_and_register<Present>();
    KNOWN(calls == 0 && frees == 0);
    operators();
    functions();
    reallocations();
    KNOWN(heaptide::deregister(monitor) && present == 0);
    say("forms\n");
    return 0;
}
