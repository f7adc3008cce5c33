#include "test.h"
#include <unistd.h>

enum { N = 6 };
static uint64_t memory_[N];

#define ONE(NAME, T) { \
    T *w = (T *)memory_; \
    memset(memory_, 0, sizeof memory_); \
    CHECK(!shmem_##NAME##_test(w, SHMEM_CMP_NE, (T)0) && shmem_##NAME##_test(w, SHMEM_CMP_GT, (T)0) == 0); \
    shmem_barrier_all(); \
    shmem_##NAME##_p(w, (T)-2, next); \
    shmem_##NAME##_wait_until(w, SHMEM_CMP_EQ, (T)-2); \
    CHECK(shmem_##NAME##_test(w, SHMEM_CMP_LT, (T)-1) && shmem_##NAME##_test(w, SHMEM_CMP_LE, (T)-2)); \
    CHECK(shmem_##NAME##_test(w, SHMEM_CMP_LT, (T)1) == ((T)-1 < (T)1)); \
    shmem_barrier_all(); \
  }

#define MANY(NAME, T) { \
    T *w = (T *)memory_, want[N]; \
    int skip[N] = {0, 1}; \
    size_t found[N], seen = 0; \
    memset(memory_, 0, sizeof memory_); \
    for (int i = 0; i < N; i++) want[i] = (T)(i + 1); \
    CHECK(!shmem_##NAME##_test_all(w, N, NULL, SHMEM_CMP_NE, (T)0)); \
    CHECK(shmem_##NAME##_test_any(w, N, NULL, SHMEM_CMP_NE, (T)0) == SIZE_MAX); \
    CHECK(shmem_##NAME##_test_some(w, N, found, NULL, SHMEM_CMP_NE, (T)0) == 0); \
    shmem_barrier_all(); \
    for (int i = N - 1; i >= 0; i--) if (i != 1) shmem_##NAME##_p(w + i, (T)(i + 1), next); \
    shmem_##NAME##_wait_until_all(w, N, skip, SHMEM_CMP_NE, (T)0); \
    shmem_##NAME##_wait_until_all_vector(w, N, skip, SHMEM_CMP_EQ, want); \
    CHECK(shmem_##NAME##_test_all(w, N, skip, SHMEM_CMP_NE, (T)0) && !shmem_##NAME##_test_all(w, N, NULL, SHMEM_CMP_NE, (T)0)); \
    CHECK(shmem_##NAME##_test_all_vector(w, N, skip, SHMEM_CMP_EQ, want)); \
    for (int k = 0; k < N - 1; k++) { \
      size_t i = shmem_##NAME##_wait_until_any(w, N, skip, SHMEM_CMP_NE, (T)0); \
      CHECK(i < N && !skip[i] && shmem_##NAME##_test_any(w + i, 1, NULL, SHMEM_CMP_EQ, (T)(i + 1)) == 0); \
      CHECK(shmem_##NAME##_wait_until_any_vector(w + i, 1, NULL, SHMEM_CMP_EQ, want + i) == 0); \
      skip[i] = 1; \
    } \
    CHECK(shmem_##NAME##_wait_until_any(w, N, skip, SHMEM_CMP_NE, (T)0) == SIZE_MAX); \
    CHECK(shmem_##NAME##_wait_until_some(w, N, found, skip, SHMEM_CMP_NE, (T)0) == 0); \
    shmem_##NAME##_wait_until_all(w, N, skip, SHMEM_CMP_NE, (T)0); \
    CHECK(shmem_##NAME##_test_any_vector(w, N, NULL, SHMEM_CMP_LT, want) == 1); \
    seen = shmem_##NAME##_wait_until_some(w, N, found, NULL, SHMEM_CMP_NE, (T)0); \
    CHECK(seen == N - 1 && found[0] == 0 && found[1] == 2); \
    CHECK(shmem_##NAME##_test_some_vector(w, N, found, NULL, SHMEM_CMP_EQ, want) == N - 1); \
    CHECK(shmem_##NAME##_wait_until_some_vector(w, N, found, NULL, SHMEM_CMP_NE, want) == 1 && found[0] == 1); \
    shmem_barrier_all(); \
  }

void wait(void) {
#define WAITS(M) AMO(M) M(short, short) M(ushort, unsigned short)
  WAITS(ONE)
  WAITS(MANY)
#define CHANGE(NAME, T) { \
    T *w = (T *)memory_; \
    *w = 0; \
    shmem_barrier_all(); \
    shmem_##NAME##_p(w, 3, next); \
    shmem_##NAME##_wait(w, 0); \
    CHECK(*w == 3); \
    shmem_barrier_all(); \
  }
  CHANGE(short, short) CHANGE(int, int) CHANGE(long, long) CHANGE(longlong, long long)
  long *w = (long *)memory_;
  *w = 0;
  shmem_barrier_all();
  if (me == 0)
    usleep(30000); /* the others sleep by then */
  shmem_long_p(w, 8, next);
  (shmem_wait)(w, 0);
  (shmem_wait_until)(w, SHMEM_CMP_EQ, 8);
  shmem_barrier_all();
  long *there = shmem_ptr(w, next);
  if (there) { /* a plain store wakes nobody */
    *w = 0;
    shmem_barrier_all();
    if (me == 0)
      usleep(30000);
    *(volatile long *)there = 4;
    shmem_long_wait_until(w, SHMEM_CMP_EQ, 4);
  }
}
