/* Matrix products on all threads that OpenMP starts; a step is a product. */
#include <omp.h>
#include <stdio.h>
#include <time.h>

enum { N = 256 };
static double a[N][N], b[N][N], c[N][N];

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

int main(void)
{
	long step = 0, told = 0;
	double at = now();

	for (int i = 0; i < N; i++)
		for (int j = 0; j < N; j++)
			a[i][j] = i + j, b[i][j] = i - j;
	for (;;) {
#pragma omp parallel for
		for (int i = 0; i < N; i++)
			for (int j = 0; j < N; j++) {
				double sum = 0;

				for (int k = 0; k < N; k++)
					sum += a[i][k] * b[k][j];
				c[i][j] = sum;
			}
		step++;
		double t = now();

		if (t - at >= 0.5) {
			printf("step=%ld t=%f dt=%f\n", step, t, (t - at) / (step - told));
			fflush(stdout);
			told = step, at = t;
		}
		a[step % N][0] = c[step % N][1] > 0; /* so that nothing is left out */
	}
}
