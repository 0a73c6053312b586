//! malloc-tag's limits of nodes, levels and siblings, its threads, and its snapshots; names of
//! scopes may have a common prefix, and any length.
//
// Known: the thread `worker` allocates 10 bytes in a scope below `outer` that exceeds the limit, so
// that they count for `outer`; `bare` has no scope and allocates 3 times 100 bytes; `late` does the
// same, and frees 3 null pointers when it exits, after the recorder has released its lane.
#include "malloc_tag.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <pthread.h>
#include <thread>

static volatile std::uintptr_t sink;

static void *block(size_t size)
{
    void *made = std::malloc(size);
    sink = reinterpret_cast<std::uintptr_t>(made);
    return made;
}

static std::string prefix;

static void work()
{
    pthread_setname_np(pthread_self(), "worker");
    prefix = MallocTagEngine::get_stat_key_prefix_for_thread();
    const size_t most = MallocTagEngine::get_limit("max_node_siblings");
    MallocTagScope outer("outer");
    for (unsigned i = 0; i < most + 1; i++) {
        char name[64];
        // The first of them is a prefix of the eleventh.
        std::snprintf(name, sizeof name, "side%u", i);
        MallocTagScope side(name);
        if (i == 16)
            block(10); // over the limit: counts for outer
    }
}

static void deep(int levels)
{
    MallocTagScope scope("a scope whose name is longer than thirty-one characters");
    if (levels > 0)
        deep(levels - 1);
    else
        std::free(block(64));
}

static void named(const char *name)
{
    pthread_setname_np(pthread_self(), name);
    for (int i = 0; i < 3; i++)
        block(100);
}

static pthread_key_t key;

/// Called again by the next round of destructors, which come after those of all keys.
static void exits(void *round)
{
    if (round == &key)
        pthread_setspecific(key, const_cast<std::uintptr_t *>(&sink));
    else
        for (int i = 0; i < 3; i++)
            std::free(nullptr);
}

static void late()
{
    named("late");
    pthread_setspecific(key, &key);
}

int main()
{
    if (!MallocTagEngine::init(50, 4, 1000))
        return std::puts("bare") < 0;
    std::thread(work).join();
    std::thread(named, "bare").join();
    pthread_key_create(&key, exits);
    std::thread(late).join();
    deep(10);
    const MallocTagStatMap_t map = MallocTagEngine::collect_stats();
    const auto of = [&map](const std::string &key) {
        const auto found = map.find(key);
        return found == map.end() ? -1 : static_cast<long>(found->second);
    };
    const std::string main_thread = MallocTagEngine::get_stat_key_prefix_for_thread();
    std::cout << of(".nTrees") << ' ' << of(prefix + ".nPushNodeFailures") << ' '
              << of(prefix + ".nMaxTreeNodes") << ' '
              << of(prefix + "worker.outer.nCallsTo_malloc") << ' '
              << of(prefix + "worker.outer.side1.nTimesEnteredAndExited") << ' '
              << of(prefix + "worker.outer.side10.nTimesEnteredAndExited") << ' '
              << of(prefix + "worker.outer.side16.nTimesEnteredAndExited") << ' '
              << of(main_thread + ".nTreeNodesInUse") << ' '
              << of(main_thread + ".nPushNodeFailures") << std::endl;
    const bool first = MallocTagEngine::write_snapshot_if_needed(MTAG_OUTPUT_FORMAT_ALL, "snap");
    const bool second = MallocTagEngine::write_snapshot_if_needed(MTAG_OUTPUT_FORMAT_ALL, "snap");
    MallocTagEngine::set_snapshot_interval(MTAG_SNAPSHOT_DISABLED);
    const bool third = MallocTagEngine::write_snapshot_if_needed(MTAG_OUTPUT_FORMAT_JSON, "snap");
    std::cout << first << second << third << ' ' << MallocTagEngine::get_limit("max_tree_levels")
              << ' ' << MallocTagEngine::get_limit("nonsense") << std::endl;
    return 0;
}
