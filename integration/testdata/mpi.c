/* Each process passes 4 MiB on to the next one, and all add up what they have. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 4 << 20, ROUNDS = 5 };

int main(int argc, char **argv)
{
	int rank, size;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	unsigned char *mine = malloc(BYTES), *got = malloc(BYTES);
	for (long i = 0; i < BYTES; i++)
		mine[i] = (unsigned char)(i * 7 + rank);
	for (int round = 1; round <= ROUNDS; round++) {
		int from = (rank + size - round % size) % size, to = (rank + round) % size;

		MPI_Sendrecv(mine, BYTES, MPI_BYTE, to, round, got, BYTES, MPI_BYTE, from, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (long i = 0; i < BYTES; i++)
			if (got[i] != (unsigned char)(i * 7 + from))
				MPI_Abort(MPI_COMM_WORLD, 1);
	}
	long one = rank + 1, all = 0;
	MPI_Allreduce(&one, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d processes, sum %ld\n", size, all);
	MPI_Finalize();
	return 0;
}
