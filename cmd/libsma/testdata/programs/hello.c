/* Each PE stores into a global variable of the next one, and a sum is made of a static one. */
#include <shmem.h>
#include <stdio.h>

long from;
static long mine, sum;

int main(void) {
  shmem_init();
  int me = shmem_my_pe(), n = shmem_n_pes();
  shmem_long_p(&from, me + 1, (me + 1) % n);
  shmem_barrier_all();
  mine = from;
  shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &sum, &mine, 1);
  if (me == 0)
    printf("%d PEs, sum %ld\n", n, sum);
  shmem_finalize();
  return 0;
}
