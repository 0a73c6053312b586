//! The same as `api_openmp.c`, with the runtime library of LLVM.
//
// expect scope:static allocations>=8 requested_bytes>=36000
// expect scope:static>part allocations=8 requested_bytes=36000 frees=8 entered=8
// expect scope:dynamic>part allocations=8 requested_bytes=36000 entered=8
// expect scope:guided>part allocations=8 requested_bytes=36000 entered=8
// expect scope:runtime>part allocations=8 requested_bytes=36000 entered=8
// expect scope:sections>part allocations=4 requested_bytes=400 entered=4
// expect scope:reduction>part allocations=4 requested_bytes=400 entered=4
// expect scope:captured>part allocations=4 requested_bytes=1200 entered=4
// expect scope:tasks>small>part allocations=16 requested_bytes=1600 entered=16
// expect scope:tasks>medium>part allocations=8 requested_bytes=800 entered=8
// expect scope:tasks>large>part allocations=4 requested_bytes=400 entered=4
// expect scope:tasks>copied>part allocations=8 requested_bytes=800 entered=8
// expect scope:tasks>detached>part allocations=8 requested_bytes=800 entered=8
// expect scope:tasks>dependent>part allocations=8 requested_bytes=800 entered=8
// expect scope:tasks>undeferred>part allocations=8 requested_bytes=800 entered=8
// expect scope:tasks>waits>part allocations=0
// expect scope:loops>signed>part allocations=8 requested_bytes=36000 entered=8
// expect scope:loops>unsigned>part allocations=8 requested_bytes=36000 entered=8
// expect scope:loops>reduced>part allocations=8 requested_bytes=36000 entered=8
// expect scope:nested>outer>part allocations=2 requested_bytes=200 entered=2
// expect scope:nested>outer>inner>part allocations=6 requested_bytes=600 entered=6
// expect scope:one>part allocations=1 requested_bytes=100 entered=1
// expect scope:sixteen>part allocations=160 requested_bytes=16000 entered=160
// expect scope:left>open entered=3
// expect scope:left>open>part allocations=3 requested_bytes=300 entered=3
// expect scope:clean>part allocations=4 requested_bytes=400 entered=4
// expect scope:many>part allocations=4000 requested_bytes=400000 entered=4000
// expect scope:part allocations=16 requested_bytes=1600 frees=16 entered=16
// expect leaf:block allocations=4320
// expect function:main>in_static>block allocations>=1
// order: varies
// compiler: clang
// build: -fopenmp
#include "api_openmp.c"
