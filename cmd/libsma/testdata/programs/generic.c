/* Type-generic functions, in C11 and C++. */
#include <mpp/shmem.h>
#include <shmem.h>
#include <stdio.h>

static long array[4], sum;
static double real;
static int64_t wide;
static size_t size;
static unsigned flags;
static short old;

int main(void) {
  shmem_init();
  int me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n, bad = 0;
  shmem_ctx_t ctx = SHMEM_CTX_DEFAULT;
  shmem_team_t team = SHMEM_TEAM_WORLD;
  long v[4] = {1, 2, 3, 4};
  const double *there = &real;
  shmem_put(array, v, 2, next);
  shmem_put(ctx, array + 2, v + 2, 2, next);
  shmem_p(&real, 2.5, next);
  shmem_p(ctx, &wide, (int64_t)7, next);
  shmem_atomic_add(&size, (size_t)3, next);
  shmem_add(&size, (size_t)2, next);
  shmem_atomic_or(ctx, &flags, 4u, next);
  shmem_wait_until(&wide, SHMEM_CMP_EQ, (int64_t)7);
  shmem_p(&old, (short)4, next);
  shmem_wait_until(&old, SHMEM_CMP_GT, (short)3);
  bad += shmem_wait_until_any(&old, 1, NULL, SHMEM_CMP_GT, (short)3) != 0;
  shmem_barrier_all();
  bad += shmem_g(there, next) != 2.5 || shmem_g(ctx, &real, next) != 2.5 || shmem_atomic_fetch(&size, next) != 5 || shmem_fetch(&size, next) != 5;
  bad += array[0] != 1 || array[3] != 4 || flags != 4 || !shmem_test(&array[1], SHMEM_CMP_EQ, 2L);
  bad += shmem_sum_reduce(team, &sum, array, 1) != 0 || sum != n;
  /* Types of a fixed size that are no other name of one for which there is the function. */
  static int32_t bits;
  static int64_t more;
  static int8_t one = 6, few;
  bits = 6, more = 3;
  shmem_barrier_all();
  shmem_atomic_or(&bits, (int32_t)1, next);
  shmem_atomic_xor(ctx, &more, (int64_t)1, next);
  bad += shmem_and_reduce(team, &few, &one, 1) != 0 || few != 6;
  shmem_barrier_all();
  bad += bits != 7 || shmem_atomic_fetch_and(&more, (int64_t)2, me) != 2;
  bad += shmem_sync(team) != 0 || shmem_atomic_fetch_add(ctx, &sum, 1L, me) != n;
  static uint64_t sig;
  static long blocks[6];
  sig = 0;
  shmem_barrier_all();
  shmem_signal_set(ctx, &sig, 4, next);
  shmem_barrier_all();
  shmem_signal_add(ctx, &sig, 1, next);
  shmem_signal_add(&sig, 1, next);
  shmem_ibput(blocks, v, 3, 2, 2, 2, next);
  shmem_barrier_all();
  bad += sig != 6 || blocks[1] != 2 || blocks[2] != 0 || blocks[4] != 4;
  shmem_ibget(ctx, v, blocks, 2, 3, 2, 2, me);
  bad += v[3] != 4 || shmem_sum_inscan(team, blocks, blocks, 1) != 0 || blocks[0] != me + 1;
  bad += shmem_sum_exscan(team, &real, &real, 1) != 0 || real != 2.5 * me;
#ifdef __cplusplus
  static std::complex<double> a, b;
  a = std::complex<double>(1, 2);
  bad += shmem_sum_reduce(team, &b, &a, 1) != 0 || b != std::complex<double>(n, 2 * n);
  bad += shmem_sum_exscan(team, &b, &a, 1) != 0 || b != std::complex<double>(me, 2 * me);
#endif
  shmem_finalize();
  if (!bad && me == 0)
    printf("passed\n");
  return bad;
}
