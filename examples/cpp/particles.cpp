//! A worked example: particles are sorted into cells, and moved by two threads in the scope of the
//! current step.
//
//     c++ -std=c++17 -O2 -g -pthread -I include -o particles examples/cpp/particles.cpp
//     heaptide run -o particles.heaptide -- ./particles
//     heaptide report --by scope particles.heaptide
//     heaptide report --by label particles.heaptide
//     heaptide tree --scopes particles.heaptide
//
// There are 10 000 particles of 32 bytes: one block of 320 000 bytes. Each of 20 steps allocates a
// list of 100 cells (2400 bytes) with one block per cell, 40 000 bytes in total, and each of two
// threads allocates a block of 80 000 bytes for its results. Without the recorder the program does
// the same, and prints no counters.

#include "heaptide.hpp"

#include <cmath>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

namespace {

constexpr unsigned particle_count = 10000, cell_count = 100, steps = 20, thread_count = 2;

struct Particle {
    double x, y, dx, dy;
};

using Particles = std::vector<Particle>;
using Cells = std::vector<std::vector<unsigned>>;

// Pseudo-random positions and directions, the same in each run.
Particles make_particles()
{
    HEAPTIDE_FUNCTION;
    Particles particles(particle_count);
    heaptide::label(particles, "particles");
    std::minstd_rand random;
    const auto next = [&random] { return static_cast<double>(random() % 1000) / 1000; };
    for (Particle &particle : particles)
        particle = {next(), next(), next() - 0.5, next() - 0.5};
    return particles;
}

unsigned cell_of(const Particle &particle)
{
    const auto part = [](double place) { return static_cast<unsigned>(place * 10) % 10; };
    return part(particle.x) * 10 + part(particle.y);
}

// Counts first, so that each cell gets one block of the exact size.
Cells sort_into_cells(const Particles &particles)
{
    HEAPTIDE_FUNCTION;
    unsigned counts[cell_count] = {};
    for (const Particle &particle : particles)
        counts[cell_of(particle)]++;
    Cells cells(cell_count);
    heaptide::label(cells, "cells");
    for (unsigned cell = 0; cell < cell_count; cell++)
        cells[cell].reserve(counts[cell]);
    for (unsigned i = 0; i < particle_count; i++)
        cells[cell_of(particles[i])].push_back(i);
    return cells;
}

// Each thread moves the particles of its cells. It works on behalf of the step that started it: the
// recording has its blocks in that step's scope, and on its own thread.
void move_particles(Particles &particles, const Cells &cells, unsigned thread,
                    heaptide::Context context)
{
    const heaptide::ContextGuard guard(context);
    HEAPTIDE_FUNCTION;
    std::vector<double> distances(particle_count);
    heaptide::label(distances, "distances");
    for (unsigned cell = thread; cell < cell_count; cell += thread_count) {
        for (const unsigned i : cells[cell]) {
            Particle &particle = particles[i];
            distances[i] = 0.001 * static_cast<double>(cells[cell].size() % 10);
            particle.x = std::fmod(particle.x + particle.dx * distances[i] + 1, 1);
            particle.y = std::fmod(particle.y + particle.dy * distances[i] + 1, 1);
        }
    }
}

void step(Particles &particles, unsigned number)
{
    HEAPTIDE_SCOPE_VALUE("step", number);
    heaptide::Measure measure;
    const Cells cells = sort_into_cells(particles);
    const heaptide::Figures figures = measure.end();
    if (number == 0 && heaptide::loaded())
        std::printf("sorting: %llu allocations of %llu bytes\n",
                    static_cast<unsigned long long>(figures.allocations),
                    static_cast<unsigned long long>(figures.requested_bytes));
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < thread_count; i++)
        threads.emplace_back([&particles, &cells, i, context = heaptide::Context::current()] {
            move_particles(particles, cells, i, context);
        });
    for (std::thread &thread : threads)
        thread.join();
}

} // namespace

int main()
{
    Particles particles = make_particles();
    heaptide::mark("made");
    heaptide::Window window("steps");
    for (unsigned number = 0; number < steps; number++)
        step(particles, number);
    const heaptide::Figures figures = window.close();
    if (heaptide::loaded()) {
        std::printf("meanwhile %s than 700 kB were live\n",
                    figures.peak_bytes < 700000 ? "always less" : "at times more");
        std::printf("the largest block: %llu bytes\n",
                    static_cast<unsigned long long>(heaptide_process_figures().largest_bytes));
    }
    const heaptide::Block found = heaptide::resolve(&particles[1234].y);
    if (found.label)
        std::printf("an address in %s[%zu]\n", found.label, found.index);
    double x = 0;
    for (const Particle &particle : particles)
        x += particle.x / particle_count;
    std::printf("in the middle: %.3f\n", x);
    return 0;
}
