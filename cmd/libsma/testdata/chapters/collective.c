#include "test.h"
#include <complex.h>

enum { MOST = 3000 };
static long double memory_[2][MOST * 4];

#define MOVES(NAME, T) { \
    T *d = (T *)memory_[0], *s = (T *)memory_[1]; \
    for (int k = 1; k <= 300; k = k * 17 + 1) { \
      for (int root = 0; root < n; root++) { \
        for (int i = 0; i < k; i++) s[i] = (T)(me + i), d[i] = 0; \
        CHECK(shmem_##NAME##_broadcast(SHMEM_TEAM_WORLD, d, s, (size_t)k, root) == 0); \
        for (int i = 0; i < k; i++) CHECK(d[i] == (T)(root + i)); \
        shmem_sync_all(); \
      } \
      CHECK(shmem_##NAME##_fcollect(SHMEM_TEAM_WORLD, d, s, (size_t)k) == 0); \
      for (int pe = 0; pe < n; pe++) for (int i = 0; i < k; i++) CHECK(d[pe * k + i] == (T)(pe + i)); \
      shmem_sync_all(); \
      CHECK(shmem_##NAME##_collect(SHMEM_TEAM_WORLD, d, s, (size_t)(k + me)) == 0); \
      for (int pe = 0, at = 0; pe < n; at += k + pe++) CHECK(d[at] == (T)pe); \
      shmem_sync_all(); \
      for (int i = 0; i < k * n; i++) s[i] = (T)(me * 3 + i / k); \
      CHECK(shmem_##NAME##_alltoall(SHMEM_TEAM_WORLD, d, s, (size_t)k) == 0); \
      for (int pe = 0; pe < n; pe++) CHECK(d[pe * k] == (T)(pe * 3 + me) && d[pe * k + k - 1] == (T)(pe * 3 + me)); \
      shmem_sync_all(); \
    } \
    for (int i = 0; i < 8 * n; i++) s[i] = (T)(me * 3 + i / 4), d[i] = 0; \
    shmem_sync_all(); \
    CHECK(shmem_##NAME##_alltoalls(SHMEM_TEAM_WORLD, d, s, 3, 2, 2) == 0); \
    for (int pe = 0; pe < n; pe++) CHECK(d[pe * 6] == (T)(pe * 3 + me) && d[pe * 6 + 3] == (T)(pe * 3 + me)); \
    shmem_sync_all(); \
  }

#define REDUCE(NAME, T, OP, VALUE, RESULT) \
  for (int k = 1; k <= 1000; k = k * 31 + 1) { \
    T *d = (T *)memory_[0], *s = (T *)memory_[1]; \
    for (int i = 0; i < k; i++) s[i] = (T)(VALUE); \
    shmem_sync_all(); \
    CHECK(shmem_##NAME##_##OP##_reduce(SHMEM_TEAM_WORLD, d, s, (size_t)k) == 0); \
    for (int i = 0; i < k; i++) CHECK(d[i] == (T)(RESULT)); \
    shmem_sync_all(); \
  }

static int product(void) {
  int p = 1;
  for (int pe = 0; pe < n; pe++)
    p *= pe + 1;
  return p;
}

#define ARITHMETIC(NAME, T) \
  REDUCE(NAME, T, sum, me + i % 3, n * (n - 1) / 2 + n * (i % 3)) \
  REDUCE(NAME, T, prod, me + 1, product())
#define ORDER(NAME, T) \
  REDUCE(NAME, T, max, me * 2 + i % 5, (n - 1) * 2 + i % 5) \
  REDUCE(NAME, T, min, (me + 1) * 2 + i % 5, 2 + i % 5)
#define BITS(NAME, T) \
  REDUCE(NAME, T, and, 0x70 | 1 << me % 4, n == 1 ? 0x71 : 0x70) \
  REDUCE(NAME, T, or, 1 << me % 4, (1 << (n < 4 ? n : 4)) - 1) \
  REDUCE(NAME, T, xor, 0x40 | me, (n % 2 ? 0x40 : 0) | (n == 2 ? 1 : n == 3 ? 3 : 0))

void collective(void) {
  RMA(MOVES)
  RMA(ARITHMETIC)
  ARITHMETIC(complexf, float complex) ARITHMETIC(complexd, double complex)
  RMA(ORDER)
  BITS(uchar, unsigned char) BITS(ushort, unsigned short) BITS(int8, int8_t) BITS(int16, int16_t) BITS(uint8, uint8_t)
  BITS(uint16, uint16_t) BITS(size, size_t)
  BITWISE(BITS)
  char *d = (char *)memory_[0], *s = (char *)memory_[1];
  memset(s, me + 1, 5);
  CHECK(shmem_broadcastmem(SHMEM_TEAM_WORLD, d, s, 5, n - 1) == 0 && d[4] == n);
  shmem_sync_all();
  CHECK(shmem_fcollectmem(SHMEM_TEAM_WORLD, d, s, 5) == 0 && d[5 * n - 1] == n);
  shmem_sync_all();
  CHECK(shmem_collectmem(SHMEM_TEAM_WORLD, d, me ? s : NULL, me ? 1 : 0) == 0 && (n == 1 || d[n - 2] == n));
  shmem_sync_all();
  CHECK(shmem_alltoallmem(SHMEM_TEAM_WORLD, d, s, 1) == 0 && d[n - 1] == n);
  shmem_sync_all();
  CHECK(shmem_alltoallsmem(SHMEM_TEAM_WORLD, d, s, 2, 1, 1) == 0 && d[2 * (n - 1)] == n);
}
