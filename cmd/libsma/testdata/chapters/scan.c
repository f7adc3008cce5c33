#include "test.h"
#include <complex.h>

enum { N = 700 };
static uint64_t memory_[2][2 * N]; /* of two, the second is what is wanted or where it goes */

/* Sums over the PEs before this one, and up to it: few elements, many, in place. */
#define SCAN(NAME, T) \
  for (int k = 3; k <= N; k += N - 3) { \
    T *s = (T *)memory_[0], *d = (T *)memory_[1]; \
    for (int i = 0; i < k; i++) s[i] = (T)(me + i % 5); \
    CHECK(shmem_##NAME##_sum_exscan(SHMEM_TEAM_WORLD, d, s, (size_t)k) == 0); \
    for (int i = 0; i < k; i++) CHECK(d[i] == (T)(me * (me - 1) / 2 + me * (i % 5)) && s[i] == (T)(me + i % 5)); \
    CHECK(shmem_##NAME##_sum_inscan(SHMEM_TEAM_WORLD, s, s, (size_t)k) == 0); \
    for (int i = 0; i < k; i++) CHECK(s[i] == (T)(me * (me + 1) / 2 + (me + 1) * (i % 5))); \
    CHECK(pshmem_##NAME##_sum_exscan(SHMEM_TEAM_WORLD, d, d, 0) == 0); \
  }

/* collect_at collects what each PE has, of any length, at one PE, as the example of the specification does. */
static void collect_at(shmem_team_t team, char *dest, const char *source, size_t bytes, int who) {
  static size_t at;
  at = bytes;
  CHECK(shmem_sum_exscan(team, &at, &at, 1) == 0);
  shmem_putmem(dest + at, source, bytes, who);
  shmem_quiet();
  shmem_team_sync(team);
}

void scan(void) {
  RMA(SCAN)
  SCAN(complexd, double _Complex)
  SCAN(complexf, float _Complex)
  static char all[100];
  memset(all, 0, sizeof all);
  shmem_barrier_all();
  char mine[8];
  memset(mine, 'a' + me, sizeof mine);
  collect_at(SHMEM_TEAM_WORLD, all, mine, (size_t)me + 1, n - 1);
  for (int pe = 0, i = 0; me == n - 1 && pe < n; pe++)
    for (int k = 0; k <= pe; k++, i++)
      CHECK(all[i] == 'a' + pe);
  shmem_team_t odd;
  CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n, NULL, 0, &odd) == 0); /* the last PE is the first one */
  static int ones, sum;
  ones = 1;
  CHECK(shmem_sum_inscan(odd, &sum, &ones, 1) == 0 && sum == n - me);
  shmem_team_destroy(odd);
}
