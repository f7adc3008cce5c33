#include "test.h"

int me, n, next, before;

#define CHAPTERS(M) M(memory) M(rma) M(blocks) M(atomic) M(signals) M(order) M(wait) M(collective) M(scan) M(session) M(team) M(context) M(lock) M(active) M(statics) M(extensions)
#define DECLARE(C) void C(void);
CHAPTERS(DECLARE)

/* Runs the chapters that are named, or all. */
int main(int argc, char **argv) {
  int provided = -1, level = -1, major = 0, minor = 0;
  char name[SHMEM_MAX_NAME_LEN];
  if (shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) != 0 || provided != SHMEM_THREAD_MULTIPLE)
    return 4;
  me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n, before = (me + n - 1) % n;
  shmem_query_thread(&level);
  shmem_info_get_version(&major, &minor);
  shmem_info_get_name(name);
  CHECK(level == provided && major == SHMEM_MAJOR_VERSION && minor == SHMEM_MINOR_VERSION && !strcmp(name, SHMEM_VENDOR_STRING));
  CHECK(shmem_pe_accessible(0) && shmem_pe_accessible(n - 1) && !shmem_pe_accessible(n) && !shmem_pe_accessible(-1));
  shmem_pcontrol(1);
#define RUN(C) \
  for (int i = 1; i < argc + (argc == 1); i++) \
    if (argc == 1 || !strcmp(argv[i], #C)) { C(); shmem_barrier_all(); }
  CHAPTERS(RUN)
  if (me == 0)
    printf("passed\n");
  shmem_finalize();
  CHECK(shmem_my_pe() == me && shmem_n_pes() == n);
  return 0;
}
