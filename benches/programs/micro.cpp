// The allocation micro-benchmark: malloc/free pairs of 16 to 512 bytes; it times itself.
//
//   micro pairs THREADS DEPTH PAIRS   each thread replaces random slots of its own 1000-slot window
//   micro xfree DEPTH PAIRS           one thread allocates, another frees (a ring of 4096 blocks)
//   micro xpass DEPTH PAIRS           the same, strictly in turns of 4096 blocks: steadier
//
// DEPTH frames that are never inlined are below the loop, for a recorder to unwind; main and the
// program's start add about six. Prints `ns_per_pair X`, the time of the slowest thread divided by
// the pairs of one thread.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#define NOINLINE __attribute__((noinline)) static

using Clock = std::chrono::steady_clock;

static constexpr unsigned WINDOW = 1000; // live blocks per thread: fits the allocator's caches
static constexpr unsigned RING = 4096;   // blocks in transit from one thread to the other
static constexpr unsigned BATCH = 32;    // blocks per handover, to reduce cache line transfers
static constexpr uint64_t SEED = 88172645463325252ull;

static inline uint64_t next(uint64_t &s) {
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
}

static inline size_t pick_size(uint64_t random) { return 16 + (random >> 32) % 497; }

static uint64_t nanoseconds_since(Clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

NOINLINE uint64_t loop_pairs(uint64_t seed, uint64_t pairs) {
    static thread_local void *slot[WINDOW];
    uint64_t s = seed, sum = 0;
    for (auto &block : slot) {
        block = malloc(pick_size(next(s)));
        *(char *)block = 1;
    }
    auto start = Clock::now();
    for (uint64_t n = 0; n < pairs; n++) {
        uint64_t random = next(s);
        unsigned i = (uint32_t)random % WINDOW;
        free(slot[i]);
        char *block = (char *)malloc(pick_size(random));
        *block = (char)n;
        slot[i] = block;
    }
    uint64_t time = nanoseconds_since(start);
    for (auto block : slot) {
        sum += *(char *)block;
        free(block);
    }
    asm volatile("" ::"r"(sum));
    return time;
}

struct Ring {
    alignas(64) std::atomic<uint64_t> head{0};
    alignas(64) std::atomic<uint64_t> tail{0};
    alignas(64) void *block[RING];
};
static Ring ring;

static inline void spin(unsigned &tries) {
    if (++tries % 64) __builtin_ia32_pause();
    else std::this_thread::yield();
}

static bool hand_over(uint64_t n, uint64_t pairs) { return (n + 1) % BATCH == 0 || n + 1 == pairs; }

NOINLINE uint64_t loop_produce(uint64_t seed, uint64_t pairs) {
    uint64_t s = seed, tail_seen = 0;
    unsigned tries = 0;
    auto start = Clock::now();
    for (uint64_t n = 0; n < pairs; n++) {
        char *block = (char *)malloc(pick_size(next(s)));
        *block = (char)n;
        while (n - tail_seen >= RING) {
            tail_seen = ring.tail.load(std::memory_order_acquire);
            if (n - tail_seen >= RING) spin(tries);
        }
        ring.block[n % RING] = block;
        if (hand_over(n, pairs)) ring.head.store(n + 1, std::memory_order_release);
    }
    while (ring.tail.load(std::memory_order_acquire) != pairs) spin(tries);
    return nanoseconds_since(start);
}

NOINLINE uint64_t loop_consume(uint64_t, uint64_t pairs) {
    uint64_t head_seen = 0;
    unsigned tries = 0;
    for (uint64_t n = 0; n < pairs; n++) {
        while (head_seen <= n) {
            head_seen = ring.head.load(std::memory_order_acquire);
            if (head_seen <= n) spin(tries);
        }
        free(ring.block[n % RING]);
        if (hand_over(n, pairs)) ring.tail.store(n + 1, std::memory_order_release);
    }
    return 0;
}

static std::atomic<int> turn{0}; // whose turn it is: 0 allocating thread, 1 freeing thread

static void give_turn(int to) {
    turn.store(to, std::memory_order_release);
    turn.notify_one();
}

NOINLINE uint64_t loop_pass_alloc(uint64_t seed, uint64_t pairs) {
    uint64_t s = seed;
    auto start = Clock::now();
    for (uint64_t done = 0; done < pairs; done += RING) {
        for (unsigned i = 0; i < RING; i++) {
            char *block = (char *)malloc(pick_size(next(s)));
            *block = (char)i;
            ring.block[i] = block;
        }
        give_turn(1);
        turn.wait(1, std::memory_order_acquire);
    }
    return nanoseconds_since(start);
}

NOINLINE uint64_t loop_pass_free(uint64_t, uint64_t pairs) {
    for (uint64_t done = 0; done < pairs; done += RING) {
        turn.wait(0, std::memory_order_acquire);
        for (unsigned i = 0; i < RING; i++) free(ring.block[i]);
        give_turn(0);
    }
    return 0;
}

using Loop = uint64_t (*)(uint64_t seed, uint64_t pairs);

NOINLINE uint64_t descend(int depth, Loop loop, uint64_t seed, uint64_t pairs) {
    uint64_t time = depth <= 0 ? loop(seed, pairs) : descend(depth - 1, loop, seed, pairs);
    asm volatile("" : "+r"(time)); // work after the call prevents a tail call, so the frame stays
    return time;
}

static uint64_t run_disjoint(int threads, int depth, uint64_t pairs) {
    if (threads == 1) return descend(depth, loop_pairs, SEED, pairs);
    std::vector<uint64_t> time(threads);
    std::vector<std::thread> running;
    for (int t = 0; t < threads; t++)
        running.emplace_back(
            [&, t] { time[t] = descend(depth, loop_pairs, SEED + 977 * t, pairs); });
    for (auto &thread : running) thread.join();
    uint64_t worst = 0;
    for (auto ns : time) worst = ns > worst ? ns : worst;
    return worst;
}

static uint64_t run_crossing(Loop here, Loop there, int depth, uint64_t pairs) {
    std::thread other([&] { descend(depth, there, 0, pairs); });
    uint64_t time = descend(depth, here, SEED, pairs);
    other.join();
    return time;
}

static int usage() {
    fprintf(stderr, "usage: micro pairs THREADS DEPTH PAIRS | micro xfree|xpass DEPTH PAIRS\n");
    return 2;
}

int main(int argc, char **argv) {
    if (argc < 4) return usage();
    uint64_t time = 0, pairs = strtoull(argv[argc - 1], nullptr, 10);
    int depth = atoi(argv[argc - 2]);
    if (!strcmp(argv[1], "pairs") && argc == 5) {
        time = run_disjoint(atoi(argv[2]), depth, pairs);
    } else if (!strcmp(argv[1], "xfree") && argc == 4) {
        time = run_crossing(loop_produce, loop_consume, depth, pairs);
    } else if (!strcmp(argv[1], "xpass") && argc == 4) {
        pairs = (pairs + RING - 1) / RING * RING;
        time = run_crossing(loop_pass_alloc, loop_pass_free, depth, pairs);
    } else {
        return usage();
    }
    printf("ns_per_pair %.3f\n", double(time) / double(pairs));
    return 0;
}
