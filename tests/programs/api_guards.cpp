//! Guards of the C++ interface: scopes in functions, templates, loops and with dynamic names,
//! contexts on other threads, exceptions through all of them, labels of containers, pools behind
//! memory resources.
//
// expect leaf:block allocations=14 frees=14
// expect scope:by_function allocations=2 entered=2
// expect scope:outer>inner allocations=1
// expect scope:round>2 allocations=1
// expect label:arena/pool_block live_blocks=0
// build: -std=c++17 -pthread
#include "api_guest.h"
#include <stdexcept>
#include <thread>

using heaptide::Context;

static Context here() { return Context::current(); }

static NOINLINE void by_function()
{
    HEAPTIDE_FUNCTION;
    free(block(3));
    stay();
}

template <typename T> static Context in_template(T value)
{
    HEAPTIDE_SCOPE("template");
    HEAPTIDE_SCOPE_VALUE("value", value);
    free(block(1));
    return here();
}

static void scopes()
{
    by_function();
    by_function();
    {
        HEAPTIDE_SCOPE("outer");
        {
            HEAPTIDE_SCOPE("inner");
            free(block(5));
            KNOWN(here().exclusive().requested_bytes == 5);
        }
        KNOWN(here().inclusive().requested_bytes == 5 && here().exclusive().allocations == 0);
    }
    for (int i = 0; i < 3; i++) {
        HEAPTIDE_SCOPE("round");
        const heaptide::Scope number(std::to_string(i));
        free(block(7));
        KNOWN(here().exclusive().allocations == 1);
    }
    const Context number = in_template(5), text = in_template("5");
    const Context same = in_template(std::string("5"));
    KNOWN(number != text && same == text && text.exclusive().allocations == 2);
    const heaptide::Name name = heaptide::name("by handle", "loop");
    for (int i = 0; i < 2; i++) {
        const heaptide::Scope scope(name);
        free(block(2));
        KNOWN(here().exclusive().allocations == (std::uint64_t)i + 1);
    }
    CHECK(here() == Context());
}

static NOINLINE void throws(int depth)
{
    HEAPTIDE_FUNCTION;
    heaptide::Pause pause;
    heaptide::Window window("left");
    heaptide::ContextGuard guard{Context()};
    HEAPTIDE_SCOPE("last");
    if (depth == 0)
        throw std::runtime_error("thrown");
    throws(depth - 1);
    stay();
}

static void exceptions()
{
    HEAPTIDE_SCOPE("catches");
    const Context before = here();
    try {
        throws(20);
        CHECK(!"thrown");
    } catch (const std::runtime_error &error) {
        CHECK(here() == before && std::string(error.what()) == "thrown");
    }
    KNOWN(heaptide_active(0));
    free(block(9));
    KNOWN(before.exclusive().requested_bytes >= 9);
}

static void threads()
{
    HEAPTIDE_SCOPE("submits");
    const Context context = here();
    std::thread worker([context] {
        CHECK(here() == Context());
        {
            heaptide::ContextGuard guard(context);
            HEAPTIDE_SCOPE("works");
            free(block(11));
            KNOWN(here().exclusive().requested_bytes == 11);
        }
        CHECK(here() == Context());
    });
    worker.join();
    KNOWN(context.inclusive().requested_bytes >= 11);
}

static bool is(const void *address, const char *name, std::size_t index)
{
    const heaptide::Block found = heaptide::resolve(address);
    return found.label && std::string(found.label) == name && found.index == index;
}

static void containers()
{
    std::vector<int> vector(100);
    std::string string(100, 'x');
    std::unique_ptr<double> one(new double(1));
    std::unique_ptr<short[]> several(new short[10]);
    static std::array<long, 8> array;
    static long plain[4];
    KNOWN(heaptide::label(vector, "vector") && is(&vector[99], "vector", 99));
    KNOWN(heaptide::label(string, "string") && is(&string[50], "string", 50));
    KNOWN(heaptide::label(one, "one") && is(one.get(), "one", 0));
    KNOWN(heaptide::label(several, "several", 10) && is(&several[9], "several", 9));
    KNOWN(heaptide::label(array, "array") && is(&array[7], "array", 7));
    KNOWN(heaptide::label(plain, "plain") && is(&plain[3], "plain", 3));
    CHECK(!heaptide::label(std::string("short"), "in the object"));
}

#ifdef HEAPTIDE_MEMORY_RESOURCES
static void memory_resources()
{
    heaptide::PoolChunks chunks("arena");
    std::pmr::unsynchronized_pool_resource arena(&chunks);
    heaptide::PoolBlocks blocks("arena", &arena);
    const auto before = heaptide_process_figures().live_bytes;
    std::pmr::vector<int> vector(10, &blocks);
    const auto with_chunk = heaptide_process_figures().live_bytes;
    KNOWN(with_chunk > before && heaptide::resolve(vector.data()).kind == HEAPTIDE_POOL_BLOCK);
    KNOWN(heaptide::resolve(vector.data()).bytes == 40);
    std::pmr::vector<int> other(10, &blocks);
    // The second block is in the same chunk, so live bytes do not increase.
    KNOWN(heaptide_process_figures().live_bytes == with_chunk);
}
#else
#error "C++17 has memory resources"
#endif

int main()
{
    scopes();
    exceptions();
    threads();
    containers();
    memory_resources();
    free(block(1));
    say("guards\n");
    return 0;
}
