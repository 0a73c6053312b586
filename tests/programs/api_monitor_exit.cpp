//! Monitors at exit: each is destroyed once, before older objects, in C and in C++; later frees are
//! not reported to it.
//
// expect totals allocations>=2
// build: -std=c++11
#include "api_guest.h"

// Destroyed after all monitors, because these are registered after its construction.
static struct Last {
    int destroyed = 0;
    char *text = nullptr;
    ~Last()
    {
        free(text);
        if (heaptide_loaded() && destroyed != 2)
            _exit(97);
        say("the last\n");
    }
} last;

class Counted : public heaptide::Monitor {
public:
    void allocated(void *, std::size_t, std::size_t) override { CHECK(last.destroyed < 2); }
    void freed(void *, std::size_t) override { CHECK(last.destroyed < 2); }
    ~Counted() override { last.destroyed++; }
};

static void in_c(void *) { last.destroyed++; }

int main()
{
    last.text = static_cast<char *>(keep(malloc(100)));
    if (heaptide::loaded()) {
        heaptide::create_and_register<Counted>();
        heaptide_monitor monitor = heaptide_monitor();
        monitor.version = HEAPTIDE_MONITOR_VERSION;
        monitor.size = sizeof monitor;
        monitor.destroy = in_c;
        CHECK(heaptide_register(&monitor) != 0);
    }
    free(keep(malloc(10)));
    say("exits\n");
    return 0;
}
