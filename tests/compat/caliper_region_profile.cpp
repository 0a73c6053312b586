//! Times of regions that the program measures itself, with or without the recorder.
//
// With -DPART this is a part in C that does not include the profile's header: region `part`, in it
// loop `steps` with 3 iterations. The other part checks which regions each profile has, that
// inclusive times are not less than exclusive ones, and that sums agree; it prints `done`. With the
// recorder: 1 allocation in main/outer/solve/part, 3 in main/outer/solve/part/steps, and the
// profile's own allocations at events are not recorded: there is none in region `common`.
#ifdef PART

#include <caliper/cali.h>

#include "../programs/guest.h"

void part(void)
{
    int i;
    CALI_MARK_BEGIN("part");
    free(keep(malloc(100)));
    CALI_MARK_LOOP_BEGIN(steps, "steps");
    for (i = 0; i < 3; i++) {
        CALI_MARK_ITERATION_BEGIN(steps, i);
        CALI_MARK_ITERATION_END(steps);
        free(keep(malloc(100)));
    }
    CALI_MARK_LOOP_END(steps);
    CALI_MARK_END("part");
}

#else

#include <caliper/RegionProfile.h>
#include <caliper/cali.h>

#include "../programs/guest.h"

#include <atomic>
#include <cmath>
#include <memory>
#include <set>
#include <thread>
#include <vector>

extern "C" void part(void);

typedef std::set<std::string> Names;
typedef std::map<std::string, double> Times;

static bool is_near(double a, double b)
{
    return std::fabs(a - b) <= 1e-9 + 1e-9 * std::fabs(a);
}

static double sum(const Times &times)
{
    double all = 0;
    for (const auto &each : times)
        all += each.second;
    return all;
}

// Checks both profiles of a type: their regions, and that the profile is consistent.
static void check(cali::RegionProfile &profile, const char *type, const Names &exclusive_names,
                  const Names &inclusive_names)
{
    Times exclusive, inclusive;
    double own, selected, total, same_total;
    std::tie(exclusive, own, total) = profile.exclusive_region_times(type);
    std::tie(inclusive, selected, same_total) = profile.inclusive_region_times(type);
    Names names;
    for (const auto &each : exclusive) {
        names.insert(each.first);
        CHECK(each.second >= 0 && inclusive.count(each.first));
        CHECK(inclusive[each.first] >= each.second || is_near(inclusive[each.first], each.second));
    }
    CHECK(names == exclusive_names);
    names.clear();
    for (const auto &each : inclusive)
        names.insert(each.first);
    CHECK(names == inclusive_names);
    CHECK(is_near(sum(exclusive), own) && is_near(total, same_total));
    CHECK(own <= selected || is_near(own, selected));
    CHECK(selected <= total || is_near(selected, total));
}
static void check(cali::RegionProfile &profile, const char *type, const Names &names)
{
    check(profile, type, names, names);
}

// Spends some time, so that regions differ from 0.
static NOINLINE void spin()
{
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::microseconds(50))
        stay();
}

static double total_of(cali::RegionProfile &profile)
{
    return std::get<2>(profile.exclusive_region_times());
}

static NOINLINE void solve()
{
    CALI_CXX_MARK_FUNCTION;
    spin();
    part();
}

// Types, and a nested part in another translation unit. `outer` is open before start() and after
// stop().
static void types()
{
    cali::RegionProfile profile;
    CHECK(!profile.is_active() && !profile.is_instantiated());
    CHECK(profile.name() == "region-profile");
    check(profile, "", {});
    CHECK(total_of(profile) == 0);
    CALI_MARK_BEGIN("outer");
    profile.start();
    CHECK(profile.is_active() && profile.is_instantiated());
    spin();
    solve();
    CALI_MARK_BEGIN("late");
    profile.stop();
    CHECK(!profile.is_active());
    CALI_MARK_END("late"); // no event of the profile
    CALI_MARK_END("outer");
    const Names all = {"main", "outer", "solve", "part", "steps"};
    check(profile, "", {"outer", "solve", "part", "steps"}, all);
    check(profile, "function", {"solve"}, {"main", "solve"});
    check(profile, "region", {"outer", "part"});
    check(profile, "annotation", {"outer", "part"});
    check(profile, "loop", {"steps"});
    check(profile, "phase", {});
    check(profile, "no such type", {"outer", "solve", "part", "steps"}, all);
    Times exclusive, inclusive;
    double selected, total;
    std::tie(inclusive, selected, total) = profile.inclusive_region_times();
    CHECK(is_near(inclusive["main"], total) && is_near(selected, total) && total >= 100e-6);
    CHECK(is_near(inclusive["outer"], inclusive["main"]));
    std::tie(exclusive, selected, total) = profile.exclusive_region_times();
    CHECK(is_near(selected, total));
    CHECK(is_near(inclusive["solve"],
                  exclusive["solve"] + exclusive["part"] + exclusive["steps"]));
    CHECK(is_near(inclusive["part"], exclusive["part"] + exclusive["steps"]));
    CHECK(exclusive["solve"] >= 50e-6 && exclusive["outer"] >= 50e-6);
}

// Attributes of the program. A value that is not nested hides the region around it from exclusive
// times only; one that is set by name, or stored as value, does not.
static void attributes()
{
    const cali_id_t nested = cali_create_attribute("own.nested", CALI_TYPE_INT, CALI_ATTR_NESTED);
    cali::RegionProfile profile;
    profile.start();
    cali_set_int_byname("own.set", 7);
    {
        CALI_CXX_MARK_SCOPE("scope");
        cali_begin_int(nested, 12);
        cali_end(nested);
        cali::Annotation plain("own.plain");
        cali::Annotation::Guard guard(plain.begin("hidden"));
        spin();
        plain.set("changed");
    }
    CALI_MARK_PHASE_BEGIN("phase");
    CALI_MARK_COMM_REGION_BEGIN("exchange");
    CALI_CXX_MARK_LOOP_BEGIN(each, "each");
    for (int i = 0; i < 2; i++) {
        CALI_CXX_MARK_LOOP_ITERATION(each, i);
    }
    CALI_CXX_MARK_LOOP_END(each);
    CALI_MARK_COMM_REGION_END("exchange");
    CALI_MARK_PHASE_END("phase");
    profile.stop();
    cali_end_byname("own.set");
    check(profile, "", {"main", "scope", "12", "phase", "exchange", "each"});
    check(profile, "own.nested", {"12"});
    check(profile, "own.plain", {"hidden", "changed"});
    check(profile, "own.set", {"7"});
    check(profile, "phase", {"phase"});
    check(profile, "comm.region", {"exchange"});
    Times exclusive, inclusive;
    double own, selected, total;
    std::tie(exclusive, own, total) = profile.exclusive_region_times("region");
    std::tie(inclusive, selected, total) = profile.inclusive_region_times("region");
    CHECK(inclusive["scope"] >= exclusive["scope"] + 50e-6);
    std::tie(exclusive, own, total) = profile.exclusive_region_times();
    std::tie(inclusive, selected, total) = profile.inclusive_region_times();
    CHECK(own + 50e-6 <= selected && is_near(selected, total));
}

// Time between stop() and start() does not count; times remain until they are cleared.
static void restarts()
{
    cali::RegionProfile profile, same = profile;
    profile.start();
    CALI_MARK_BEGIN("first");
    spin();
    CALI_MARK_END("first");
    profile.stop();
    const Times first = std::get<0>(profile.exclusive_region_times());
    const double total = total_of(profile);
    CALI_MARK_BEGIN("unseen");
    spin();
    CALI_MARK_END("unseen");
    CHECK(total_of(profile) == total && std::get<0>(profile.exclusive_region_times()) == first);
    same.start();
    CHECK(profile.is_active());
    profile.start(); // no effect
    CALI_MARK_BEGIN("second");
    CALI_MARK_END("second");
    same.stop();
    check(profile, "", {"main", "first", "second"});
    CHECK(total_of(profile) > total && total_of(profile) == total_of(same));
    CHECK(std::get<0>(profile.exclusive_region_times("region"))["first"] == first.at("first"));
    profile.clear();
    check(profile, "", {});
    CHECK(total_of(profile) == 0);
    profile.start();
    CALI_MARK_BEGIN("third");
    CALI_MARK_END("third");
    check(profile, "", {"main", "third"});
    profile.clear();
    CALI_MARK_BEGIN("fourth");
    CALI_MARK_END("fourth");
    check(profile, "", {"main", "fourth"});
}

// Several profiles, destroyed while active, in the order of their construction.
static void several()
{
    std::vector<std::unique_ptr<cali::RegionProfile>> profiles;
    for (int i = 0; i < 3; i++) {
        profiles.emplace_back(new cali::RegionProfile);
        profiles.back()->start();
        CALI_MARK_BEGIN(i == 0 ? "a" : i == 1 ? "b" : "c");
    }
    CALI_MARK_END("c");
    check(*profiles[0], "region", {"a", "b", "c"});
    profiles.erase(profiles.begin());
    CALI_MARK_END("b");
    check(*profiles[0], "region", {"a", "b", "c"});
    check(*profiles[1], "region", {"b", "c"}, {"a", "b", "c"});
    profiles.erase(profiles.begin());
    CALI_MARK_END("a");
    check(*profiles[0], "region", {"a", "b", "c"});
    profiles.clear();
    CALI_MARK_BEGIN("nobody measures");
    CALI_MARK_END("nobody measures");
}

// The times of threads add up, also after their ends; queries run at the same time.
static void threads()
{
    cali::RegionProfile profile;
    std::atomic<int> running(4);
    profile.start();
    std::vector<std::thread> all;
    for (int i = 0; i < 4; i++)
        all.emplace_back([&running, i] {
            for (int round = 0; round < 200; round++) {
                CALI_MARK_BEGIN("common");
                CALI_MARK_BEGIN(i % 2 ? "odd" : "even");
                if (!round)
                    spin();
                CALI_MARK_END(i % 2 ? "odd" : "even");
                CALI_MARK_END("common");
            }
            running--;
        });
    while (running) {
        cali::RegionProfile other;
        other.start();
        const auto now = profile.inclusive_region_times();
        CHECK(std::get<1>(now) <= std::get<2>(now) || is_near(std::get<1>(now), std::get<2>(now)));
    }
    for (auto &each : all)
        each.join();
    profile.stop();
    check(profile, "", {"common", "odd", "even"});
    Times times = std::get<0>(profile.inclusive_region_times());
    CHECK(times["odd"] >= 100e-6 && times["even"] >= 100e-6);
    CHECK(times["common"] >= times["odd"] + times["even"]
          || is_near(times["common"], times["odd"] + times["even"]));
}

int main()
{
    CALI_MARK_FUNCTION_BEGIN;
    types();
    attributes();
    restarts();
    several();
    threads();
    CALI_MARK_FUNCTION_END;
    say("done\n");
    return 0;
}

#endif
