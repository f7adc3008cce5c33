#include "test.h"

static uint64_t word[4];

#define FETCHES(NAME, T) { \
    T *w = (T *)word, old = 0; \
    word[0] = 0; \
    shmem_barrier_all(); \
    shmem_##NAME##_atomic_set(w, (T)5, next); \
    shmem_quiet(); \
    CHECK(shmem_##NAME##_atomic_fetch(w, next) == (T)5); \
    CHECK(shmem_##NAME##_atomic_swap(w, (T)(me + 6), next) == (T)5); \
    CHECK(shmem_ctx_##NAME##_atomic_fetch(SHMEM_CTX_DEFAULT, w, next) == (T)(me + 6)); \
    shmem_##NAME##_atomic_swap_nbi(&old, w, (T)9, next); \
    shmem_quiet(); \
    CHECK(old == (T)(me + 6)); \
    shmem_##NAME##_atomic_fetch_nbi(&old, w, next); \
    shmem_quiet(); \
    CHECK(old == (T)9); \
    shmem_barrier_all(); \
  }

#define ARITHMETIC(NAME, T) { \
    T *w = (T *)word, old = 0; \
    word[0] = 0; \
    shmem_barrier_all(); \
    for (int i = 0; i < 10; i++) { \
      shmem_##NAME##_atomic_inc(w, 0); \
      shmem_##NAME##_atomic_add(w, (T)3, 0); \
      shmem_##NAME##_atomic_fetch_inc(w, 0); \
      shmem_##NAME##_atomic_fetch_add(w, (T)4, 0); \
    } \
    shmem_##NAME##_atomic_fetch_inc_nbi(&old, w, 0); \
    shmem_##NAME##_atomic_fetch_add_nbi(&old, w, (T)1, 0); \
    shmem_barrier_all(); \
    CHECK(shmem_##NAME##_g(w, 0) == (T)(92 * n)); \
    shmem_barrier_all(); \
    *w = (T)-1; \
    shmem_barrier_all(); \
    CHECK(shmem_##NAME##_atomic_compare_swap(w, (T)1, (T)2, next) == (T)-1); \
    CHECK(shmem_##NAME##_atomic_compare_swap(w, (T)-1, (T)2, next) == (T)-1); \
    shmem_##NAME##_atomic_compare_swap_nbi(&old, w, (T)2, (T)7, next); \
    shmem_barrier_all(); \
    CHECK(old == (T)2 && *w == (T)7); \
    shmem_barrier_all(); \
  }

#define BITS(NAME, T) { \
    T *w = (T *)word, old = 0; \
    *w = (T)0xf0; \
    shmem_barrier_all(); \
    CHECK(shmem_##NAME##_atomic_fetch_and(w, (T)0x3c, next) == (T)0xf0); \
    CHECK(shmem_##NAME##_atomic_fetch_or(w, (T)0x03, next) == (T)0x30); \
    CHECK(shmem_##NAME##_atomic_fetch_xor(w, (T)0x11, next) == (T)0x33); \
    shmem_##NAME##_atomic_and(w, (T)0x2f, next); \
    shmem_##NAME##_atomic_or(w, (T)0x40, next); \
    shmem_##NAME##_atomic_xor(w, (T)0x01, next); \
    shmem_barrier_all(); \
    CHECK(*w == (T)0x63); \
    shmem_barrier_all(); \
    shmem_##NAME##_atomic_fetch_and_nbi(&old, w, (T)0x0f, next); \
    shmem_quiet(); \
    CHECK(old == (T)0x63); \
    shmem_##NAME##_atomic_fetch_or_nbi(&old, w, (T)0x0f, next); \
    shmem_quiet(); \
    CHECK(old == (T)0x03); \
    shmem_##NAME##_atomic_fetch_xor_nbi(&old, w, (T)0xff, next); \
    shmem_quiet(); \
    CHECK(old == (T)0x0f); \
    shmem_barrier_all(); \
    CHECK(*w == (T)0xf0); \
    shmem_barrier_all(); \
  }

#define OLD(NAME, T) { \
    T *w = (T *)word; \
    word[0] = 0; \
    shmem_barrier_all(); \
    shmem_##NAME##_set(w, (T)1, next); \
    shmem_quiet(); \
    CHECK(shmem_##NAME##_fetch(w, next) == (T)1 && shmem_##NAME##_swap(w, (T)2, next) == (T)1); \
    shmem_barrier_all(); \
    CHECK(*w == (T)2); \
    shmem_barrier_all(); \
  }

#define OLDADD(NAME, T) { \
    T *w = (T *)word; \
    word[0] = 0; \
    shmem_barrier_all(); \
    shmem_##NAME##_inc(w, next); \
    shmem_##NAME##_add(w, (T)2, next); \
    CHECK(shmem_##NAME##_finc(w, next) == (T)3 && shmem_##NAME##_fadd(w, (T)6, next) == (T)4); \
    CHECK(shmem_##NAME##_cswap(w, (T)10, (T)11, next) == (T)10); \
    shmem_barrier_all(); \
    CHECK(*w == (T)11); \
    shmem_barrier_all(); \
  }

void atomic(void) {
  FETCHES(float, float) FETCHES(double, double)
  AMO(FETCHES)
  AMO(ARITHMETIC)
  BITWISE(BITS)
  OLD(float, float) OLD(double, double)
  AMO(OLD)
  AMO(OLDADD)
}
