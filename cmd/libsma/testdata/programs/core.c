/* PE 0 fills an object, says where it is, and leaves a core dump in the directory of its argument. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static char got[1 << 20];

int main(int argc, char **argv) {
  struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
  if (argc < 2 || chdir(argv[1]) != 0 || setrlimit(RLIMIT_CORE, &all) != 0)
    return 2;
  shmem_init();
  unsigned char *object = shmem_malloc(sizeof got);
  for (size_t i = 0; i < sizeof got; i++)
    object[i] = (unsigned char)(i * 7);
  shmem_barrier_all();
  for (int pe = 0; pe < shmem_n_pes(); pe++)
    shmem_getmem(got, object, sizeof got, pe);
  shmem_barrier_all();
  if (shmem_my_pe() == 0) {
    printf("%zu\n", (size_t)object);
    fflush(stdout);
    abort();
  }
  shmem_barrier_all();
  return 0;
}
