//! A monitor is called once for its creation, each allocation, each free and its end, even if it
//! allocates in each of these. Without the recorder, creating one throws an exception.
//
// expect leaf:in_program allocations=6 frees=6
// build: -std=c++11
#include "api_guest.h"

struct Calls {
    int count, made, allocated, freed, destroyed; // each: the number of its last call
    std::size_t requested;
    void *block;
};

static NOINLINE void in_monitor() { delete keep(new int(1)); }

template <bool Allocates> class Counting : public heaptide::Monitor {
public:
    explicit Counting(Calls &calls) : calls_(calls) { calls_.made = called(); }
    ~Counting() override { calls_.destroyed = called(); }

    void allocated(void *block, std::size_t requested, std::size_t usable) override
    {
        calls_.allocated = called();
        calls_.requested = requested;
        calls_.block = block;
        CHECK(usable == malloc_usable_size(block));
    }
    void freed(void *block, std::size_t usable) override
    {
        CHECK(calls_.block == block && usable == malloc_usable_size(block));
        calls_.freed = called();
    }

private:
    int called()
    {
        if (Allocates)
            in_monitor();
        return ++calls_.count;
    }
    Calls &calls_;
};

static NOINLINE void in_program()
{
    int *p = keep(new int(1));
    delete keep(p);
    stay();
}

template <typename T> static void counted()
{
    Calls calls = Calls();
    in_program();
    T *monitor = heaptide::create_and_register<T>(calls);
    CHECK(calls.count == 1 && calls.made == 1);
    in_program();
    CHECK(calls.allocated == 2 && calls.freed == 3 && calls.count == 3);
    CHECK(calls.requested == sizeof(int));
    CHECK(heaptide::deregister(monitor));
    CHECK(calls.destroyed == 4 && calls.count == 4);
    in_program();
    CHECK(calls.count == 4);
}

// If the constructor throws, nothing stays registered.
class Failing : public Counting<true> {
public:
    explicit Failing(Calls &calls) : Counting<true>(calls) { throw std::runtime_error("failing"); }
};

static void failing()
{
    Calls calls = Calls();
    try {
        heaptide::create_and_register<Failing>(calls);
        CHECK(!"registered");
    } catch (const std::runtime_error &error) {
        CHECK(std::string(error.what()) == "failing" && calls.count == 2 && calls.destroyed == 2);
    }
    CHECK(heaptide_active(0));
}

class Quiet : public heaptide::Monitor {
public:
    explicit Quiet(int &destroyed) : destroyed_(destroyed) {}
    ~Quiet() override { destroyed_++; }
    void allocated(void *, std::size_t, std::size_t) override {}
    void freed(void *, std::size_t) override {}

private:
    int &destroyed_;
};

// As many monitors as can be registered, and one more.
static void table_full()
{
    int destroyed = 0;
    std::vector<Quiet *> monitors;
    try {
        for (int i = 0; i < 33; i++)
            monitors.push_back(heaptide::create_and_register<Quiet>(destroyed));
        CHECK(!"registered");
    } catch (const heaptide::not_loaded &) {
        CHECK(!"loaded");
    } catch (const std::runtime_error &) {
        CHECK(monitors.size() == 32 && destroyed == 1);
    }
    for (Quiet *monitor : monitors)
        CHECK(heaptide::deregister(monitor));
    CHECK(destroyed == 33);
}

static void not_there()
{
    Calls calls = Calls();
    try {
        heaptide::create_and_register<Counting<false>>(calls);
        CHECK(!"registered");
    } catch (const heaptide::not_loaded &error) {
        const std::string what = error.what();
        CHECK(what.find("not loaded") != std::string::npos);
        CHECK(what.find("`heaptide run`") != std::string::npos);
    }
    CHECK(calls.count == 0 && !heaptide::deregister(nullptr));
    heaptide_monitor monitor = heaptide_monitor();
    monitor.version = HEAPTIDE_MONITOR_VERSION;
    monitor.size = sizeof monitor;
    CHECK(heaptide_register(&monitor) == 0 && heaptide_deregister(1) == 0);
}

int main()
{
    if (heaptide::loaded()) {
        counted<Counting<false>>();
        counted<Counting<true>>();
        failing();
        table_full();
        heaptide_monitor unknown = heaptide_monitor();
        unknown.version = 99;
        unknown.size = sizeof unknown;
        CHECK(heaptide_register(&unknown) == 0);
    } else {
        not_there();
    }
    say("monitored\n");
    return 0;
}
