/* Logistic regression on the ranks of an MPI job: each computes a gradient on rows of its own, and
 * MPI_Allreduce adds them up; a step is an update. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROWS = 20000, COLUMNS = 50 };
static double x[ROWS][COLUMNS], y[ROWS], weights[COLUMNS];

static double clock_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	int rank, size;
	long step = 0, told = 0;
	double at;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	srand(rank + 1);
	for (int i = 0; i < ROWS; i++) {
		for (int j = 0; j < COLUMNS; j++)
			x[i][j] = rand() / (double)RAND_MAX - 0.5;
		y[i] = x[i][0] + x[i][1] > 0;
	}
	at = clock_now();
	for (;;) {
		double gradient[COLUMNS] = {0}, sum[COLUMNS], now;

		for (int i = 0; i < ROWS; i++) {
			double z = 0;

			for (int j = 0; j < COLUMNS; j++)
				z += weights[j] * x[i][j];
			z = 1 / (1 + exp(-z)) - y[i];
			for (int j = 0; j < COLUMNS; j++)
				gradient[j] += z * x[i][j];
		}
		MPI_Allreduce(gradient, sum, COLUMNS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		for (int j = 0; j < COLUMNS; j++)
			weights[j] -= sum[j] / ROWS / size;
		step++;
		now = clock_now();
		if (rank == 0 && now - at >= 0.5) {
			printf("step=%ld t=%f dt=%f\n", step, now, (now - at) / (step - told));
			fflush(stdout);
			at = now;
			told = step;
		}
	}
}
