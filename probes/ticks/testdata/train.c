// A process that trains with the real libraries, so many calls for each line "LIBRARY N", and
// answers each line with one.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *lib(const char *file)
{
	void *l = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
	if (!l) { printf("no %s: %s\n", file, dlerror()); exit(3); }
	return l;
}

static void must(const char *what, int rc)
{
	if (rc) { printf("%s: %d\n", what, rc); exit(4); }
}

enum { ROWS = 64, COLS = 4 };
static float x[ROWS * COLS], y[ROWS];

static void xgboost(int n)
{
	static void *matrix, *booster, *l;
	static int round;
	if (!l) {
		l = lib("libxgboost.so.0");
		int (*matrix_of)(const float *, unsigned long, unsigned long, float, void **) = dlsym(l, "XGDMatrixCreateFromMat");
		int (*label)(void *, const char *, const float *, unsigned long) = dlsym(l, "XGDMatrixSetFloatInfo");
		int (*create)(void *const *, unsigned long, void **) = dlsym(l, "XGBoosterCreate");
		must("matrix", matrix_of(x, ROWS, COLS, -1, &matrix));
		must("label", label(matrix, "label", y, ROWS));
		must("booster", create(&matrix, 1, &booster));
	}
	int (*update)(void *, int, void *) = dlsym(l, "XGBoosterUpdateOneIter");
	while (n--) must("update", update(booster, round++, matrix));
}

static void fann(int n)
{
	static void *net, *data, *l;
	if (!l) {
		l = lib("libfann.so.2");
		void *(*create)(unsigned, ...) = dlsym(l, "fann_create_standard");
		void *(*data_of)(unsigned, unsigned, unsigned) = dlsym(l, "fann_create_train");
		net = create(3, COLS, 3, 1);
		data = data_of(ROWS, COLS, 1);
	}
	float (*epoch)(void *, void *) = dlsym(l, "fann_train_epoch");
	while (n--) epoch(net, data);
}

int main(void)
{
	char line[64], name[32];
	int n;
	for (int i = 0; i < ROWS * COLS; i++) x[i] = (i * 7919 % 101) / 101.0f;
	for (int i = 0; i < ROWS; i++) y[i] = x[i * COLS] > 0.5f;
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof line, stdin) && sscanf(line, "%31s %d", name, &n) == 2) {
		if (!strcmp(name, "xgboost")) xgboost(n);
		else if (!strcmp(name, "fann")) fann(n);
		puts("done");
	}
	return 0;
}
