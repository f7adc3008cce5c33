/* Puts more than there is. */
#include <shmem.h>
#include <stdlib.h>

int main(void) {
  shmem_init();
  long *to = shmem_malloc(10 * sizeof *to), *from = calloc(1, sizeof *from);
  shmem_long_put(to, from, 10, shmem_my_pe());
  free(from);
  shmem_free(to);
  shmem_finalize();
  return 0;
}
