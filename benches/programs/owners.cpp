// Allocates for twelve owners, each a scope, with shares of the bytes from 40 % down to 1 %. All
// runs allocate the same blocks:
//
//     owners uniform|mixed|heavy|threads MEGABYTES
//
// uniform: blocks of 96 bytes. mixed: from 16 bytes to 128 KiB, most blocks small and most bytes
// large. heavy: a Pareto distribution with an infinite mean, from 16 bytes to 1 MiB.
// threads: mixed, by four threads of one name and one of another.
//
// First each owner allocates half of its bytes: that is the peak. Then half of these blocks are
// freed, and the owner allocates and frees the other half of its bytes block by block.
#include "heaptide.h"
#include <cstdint>
#include <cstdlib>
#include <pthread.h>
#include <sys/mman.h>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int SHARES[] = {400, 200, 100, 80, 50, 50, 30, 30, 20, 20, 11, 9};
constexpr size_t OWNERS = sizeof SHARES / sizeof *SHARES;

// splitmix64 (Steele, Lea, Flood 2014).
struct Random {
    uint64_t state;

    uint64_t next() {
        uint64_t n = state += 0x9e3779b97f4a7c15;
        n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9;
        n = (n ^ n >> 27) * 0x94d049bb133111eb;
        return n ^ n >> 31;
    }

    double part() { return (next() >> 11) * 0x1p-53; }
};

enum class Sizes { Uniform, Mixed, Heavy };

size_t size_of(Sizes sizes, Random& random) {
    switch (sizes) {
    case Sizes::Uniform:
        return 96;
    case Sizes::Heavy: {
        const double size = 16 / (1 - random.part());
        return size > (1 << 20) ? 1 << 20 : static_cast<size_t>(size);
    }
    case Sizes::Mixed:
        break;
    }
    const double part = random.part();
    return part < 0.5 ? 16 + random.next() % 48
        : part < 0.9  ? 64 + random.next() % 448
        : part < 0.99 ? 512 + random.next() % 7680
                      : 8192 + random.next() % 122880;
}

// Not optimised away.
void* volatile sink;

char* block(size_t size) {
    char* const block = static_cast<char*>(std::malloc(size));
    sink = block;
    return block;
}

struct Owner {
    std::string name;
    Sizes sizes;
    Random random;
    size_t bytes;
    // Mapped: no block of its own. As many as there may be.
    char** live = nullptr;
    size_t count = 0;

    template <typename Use> void each(Use use) {
        for (size_t done = 0; done < bytes / 2;) {
            const size_t size = size_of(sizes, random);
            use(size);
            done += size;
        }
    }

    void build() {
        const size_t room = bytes / 16 * sizeof *live;
        constexpr int access = PROT_READ | PROT_WRITE;
        void* const map = mmap(nullptr, room, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED) std::abort();
        live = static_cast<char**>(map);
        heaptide_begin(name.c_str());
        each([&](size_t size) { live[count++] = block(size); });
        heaptide_end(name.c_str());
    }

    void work() {
        for (size_t i = 0; i < count; i++)
            if (random.next() & 1) std::free(live[i]);
        heaptide_begin(name.c_str());
        each([&](size_t size) { std::free(block(size)); });
        heaptide_end(name.c_str());
    }
};

void run(const char* thread, std::vector<Owner>& owners) {
    if (thread) pthread_setname_np(pthread_self(), thread);
    for (Owner& owner : owners) owner.build();
    for (Owner& owner : owners) owner.work();
}

std::vector<Owner> owners_of(Sizes sizes, size_t bytes, uint64_t seed) {
    std::vector<Owner> owners;
    for (size_t i = 0; i < OWNERS; i++) {
        const size_t own = bytes / 1000 * SHARES[i];
        owners.push_back({"owner" + std::to_string(i), sizes, {seed * 100 + i}, own});
    }
    return owners;
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const std::string what = argv[1];
    const size_t bytes = std::strtoul(argv[2], nullptr, 10) << 20;
    if (what == "threads") {
        std::vector<std::vector<Owner>> owners;
        for (int i = 0; i < 5; i++) owners.push_back(owners_of(Sizes::Mixed, bytes / 5, i));
        std::vector<std::thread> threads;
        for (int i = 0; i < 5; i++)
            threads.emplace_back([&, i] { run(i < 4 ? "worker" : "other", owners[i]); });
        for (std::thread& thread : threads) thread.join();
        return 0;
    }
    const Sizes sizes = what == "uniform" ? Sizes::Uniform
        : what == "heavy"                 ? Sizes::Heavy
                                          : Sizes::Mixed;
    std::vector<Owner> owners = owners_of(sizes, bytes, 1);
    run(nullptr, owners);
}
