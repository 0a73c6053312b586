//! MallocProfiler's tracingThread.so, and with -DSTAT_ONLY its statOnlyThread.so, to be preloaded
//! with mallocProfiler.so:
//
//   c++ -O2 -shared -fPIC -pthread -o tracingThread.so tracingThread.cc
#include "mallocProfiler.h"

#ifdef STAT_ONLY
constexpr bool statisticsOnly = true;
#else
constexpr bool statisticsOnly = false;
#endif

static const bool isStarted = (mallocProfiler::startTracing(statisticsOnly), true);
