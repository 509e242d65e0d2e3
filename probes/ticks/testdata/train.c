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

// As libsvm's svm.h has them.
struct node { int index; double value; };
struct problem { int l; double *y; struct node **x; };
struct parameter {
	int svm_type, kernel_type, degree;
	double gamma, coef0, cache_size, eps, c;
	int weights, *label;
	double *weight, nu, p;
	int shrinking, probability;
};

static void svm(int n)
{
	static void *l;
	static struct node nodes[ROWS][2];
	static struct node *rows[ROWS];
	static double labels[ROWS];
	struct parameter how = {.gamma = 1, .kernel_type = 2, .cache_size = 1, .eps = 1e-3, .c = 1, .shrinking = 1};
	if (!l) {
		l = lib("libsvm.so.3");
		void (*quiet)(void (*)(const char *)) = dlsym(l, "svm_set_print_string_function");
		static void (*silent)(const char *);
		silent = (void (*)(const char *))dlsym(RTLD_DEFAULT, "labs"); // anything that does nothing
		quiet(silent);
	}
	struct problem p = {ROWS, labels, rows};
	for (int i = 0; i < ROWS; i++) {
		nodes[i][0] = (struct node){1, x[i]};
		nodes[i][1] = (struct node){-1, 0};
		rows[i] = nodes[i];
		labels[i] = i % 2 ? 1 : -1;
	}
	void *(*train)(const struct problem *, const struct parameter *) = dlsym(l, "svm_train");
	while (n--) train(&p, &how);
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
		else if (!strcmp(name, "svm")) svm(n);
		puts("done");
	}
	return 0;
}
