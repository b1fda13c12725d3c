// SMOE_VECTOR_CLONES before a function compiles it for the widest registers of several x86-64 levels and
// chooses when the program loads. The chooser runs before a sanitizer's runtime does, so that such builds
// take the baseline. SMOE_INLINE marks what must be part of the function to be compiled with it.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define SMOE_VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SMOE_VECTOR_CLONES
#endif
#define SMOE_INLINE __attribute__((always_inline)) inline
