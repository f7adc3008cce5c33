#include "test.h"
#include <sys/wait.h>
#include <unistd.h>

int global = 11, uninitialized;
static char large[3 << 20];
const char *text = "text"; /* a pointer that the loader has set */

void statics(void) {
  static long counted = 5;
  CHECK(global == 11 && counted == 5 && !strcmp(text, "text"));
  shmem_barrier_all();
  shmem_int_p(&uninitialized, me + 1, next);
  shmem_char_p(&large[sizeof large - 1], (char)(me + 2), next);
  shmem_long_atomic_add(&counted, 1, next);
  shmem_barrier_all();
  CHECK(uninitialized == before + 1 && large[sizeof large - 1] == (char)(before + 2) && counted == 6);
  /* What a child stores stays there. */
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    int seen = global;
    global = 99, counted = 99;
    _exit(seen == 11 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(pid, &status, 0) == pid && status == 0 && global == 11 && counted == 6);
  CHECK(system("exit 3") == 3 << 8 && setenv("LIBSMA_TEST", "1", 1) == 0 && getenv("LIBSMA_TEST"));
  global = 12;
  shmem_barrier_all();
  CHECK(shmem_g(&global, next) == 12);
}
