/* One PE does what its argument says, and the others wait for it. */
#include <shmem.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long word;

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  long local = 0;
  if (!strcmp(what, "early"))
    shmem_barrier_all();
  shmem_init();
  shmem_barrier_all(); /* all have joined: each notices what PE 0 does */
  if (shmem_my_pe() == 0) {
    printf("printed before\n"); /* is in a buffer */
    if (!strcmp(what, "pe")) shmem_long_p(&word, 1, shmem_n_pes());
    if (!strcmp(what, "address")) shmem_long_p(&local, 1, 1);
    if (!strcmp(what, "size")) shmem_putmem(&word, &word, (size_t)1 << 50, 1);
    if (!strcmp(what, "context")) shmem_ctx_long_p(SHMEM_CTX_INVALID, &word, 1, 1);
    if (!strcmp(what, "free")) shmem_free(&word);
    if (!strcmp(what, "comparison")) shmem_long_wait_until(&word, 77, 1);
    if (!strcmp(what, "stride")) shmem_long_iput(&word, &word, 0, 1, 1, 1);
    if (!strcmp(what, "lock")) shmem_clear_lock(&word);
    if (!strcmp(what, "team")) shmem_sum_reduce((shmem_team_t)77, &word, &word, 1);
    if (!strcmp(what, "exit")) return 7;
    if (!strcmp(what, "global")) shmem_global_exit(9);
    if (!strcmp(what, "abort")) abort();
    if (!strcmp(what, "kill")) {
      fflush(stdout);
      raise(SIGKILL);
    }
    if (!strcmp(what, "threads")) { /* Go's threads have blocked what programs handle */
      fflush(stdout);
      exit(system("cd /proc/$PPID/task; for t in *; do [ $t = $PPID ] || grep -q 'SigBlk:.*[13579bdf]$' $t/status || exit 4; done"));
    }
  }
  if (!strcmp(what, "late")) {
    int first = shmem_my_pe() == 0;
    shmem_finalize();
    if (first)
      shmem_barrier_all();
    return 0;
  }
  if (!strcmp(what, "") || !strcmp(what, "threads")) /* main ends without shmem_finalize */
    return 0;
  shmem_long_wait_until(&word, SHMEM_CMP_EQ, 5);
  return 0;
}
