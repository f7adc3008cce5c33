/* The name of shmem.h in old programs. */
#include <shmem.h>
