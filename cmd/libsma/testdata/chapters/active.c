#include "test.h"
#include <complex.h>

/* Active sets. Work arrays are passed as the specification wants, and not used. */
static long sync_[SHMEM_SYNC_SIZE], work[100], data[2][64];
static long double any[2][64];

#define REDUCE(NAME, T, OP, VALUE, RESULT) { \
    T *d = (T *)any[0], *s = (T *)any[1]; \
    for (int i = 0; i < 5; i++) s[i] = (T)(VALUE); \
    shmem_barrier(0, 0, n, sync_); \
    shmem_##NAME##_##OP##_to_all(d, s, 5, 0, 0, n, (T *)work, sync_); \
    for (int i = 0; i < 5; i++) CHECK(d[i] == (T)(RESULT)); \
    shmem_sync(0, 0, n, sync_); \
  }

static int product(void) {
  int p = 1;
  for (int pe = 0; pe < n; pe++)
    p *= pe + 1;
  return p;
}

#define SUMS(NAME, T) REDUCE(NAME, T, sum, me + i, n * (n - 1) / 2 + n * i) REDUCE(NAME, T, prod, me + 1, product())
#define ORDER(NAME, T) REDUCE(NAME, T, max, me + i, n - 1 + i) REDUCE(NAME, T, min, me + i, i)
#define BITS(NAME, T) REDUCE(NAME, T, and, 4 | me, n == 1 ? 4 : 4) REDUCE(NAME, T, or, 4 | (me == 0), 5) REDUCE(NAME, T, xor, me == 0, 1)
#define WORDS(M) M(short, short) M(int, int) M(long, long) M(longlong, long long)

void active(void) {
  shmem_clear_cache_inv(), shmem_set_cache_inv(), shmem_udcflush();
  shmem_clear_cache_line_inv(data), shmem_set_cache_line_inv(data), shmem_udcflush_line(data);
  WORDS(SUMS) REALS(SUMS) SUMS(complexf, float complex) SUMS(complexd, double complex)
  WORDS(ORDER) REALS(ORDER)
  WORDS(BITS)
  long *d = data[0], *s = data[1];
  for (int start = 0; start < n; start++)
    for (int log = 0; log < 2; log++) {
      int size = (n - 1 - start) / (1 << log) + 1, mine = (me - start) / (1 << log);
      if (me >= start && (me - start) % (1 << log) == 0) {
        int *d32 = (int *)d, *s32 = (int *)s;
        for (int root = 0; root < size; root++) {
          s[0] = me, s[1] = me * 2, d[0] = d[1] = -1;
          shmem_barrier(start, log, size, sync_);
          shmem_broadcast64(d, s, 2, root, start, log, size, sync_);
          CHECK(mine == root ? d[0] == -1 && d[1] == -1 : d[1] == 2 * (start + (root << log)));
          shmem_barrier(start, log, size, sync_);
          s32[0] = me, d32[0] = -1;
          shmem_broadcast32(d, s, 1, root, start, log, size, sync_);
          CHECK(d32[0] == (mine == root ? -1 : start + (root << log)));
        }
        s[0] = me;
        shmem_barrier(start, log, size, sync_);
        shmem_fcollect64(d, s, 1, start, log, size, sync_);
        CHECK(d[0] == start && d[size - 1] == start + ((size - 1) << log));
        shmem_barrier(start, log, size, sync_);
        shmem_collect64(d, s, (size_t)(mine > 0), start, log, size, sync_);
        CHECK(size == 1 || d[size - 2] == start + ((size - 1) << log));
        for (int pe = 0; pe < size; pe++)
          s[pe] = me * 10 + pe, s32[pe + 32] = me * 10 + pe;
        shmem_barrier(start, log, size, sync_);
        shmem_alltoall64(d, s, 1, start, log, size, sync_);
        CHECK(d[size - 1] == (start + ((size - 1) << log)) * 10 + mine);
        shmem_barrier(start, log, size, sync_);
        shmem_alltoalls32(d32, s32 + 32, 2, 1, 1, start, log, size, sync_);
        CHECK(d32[2 * (size - 1)] == (start + ((size - 1) << log)) * 10 + mine);
        shmem_barrier(start, log, size, sync_);
      }
    }
}
