/* modules_test.go's program, by the driver's own calls: variables of modules. */
#include <stdio.h>
#include <stdlib.h>

typedef struct CUmod_st *module_t;
typedef unsigned long long pointer_t;
extern int cuInit(unsigned flags), cuDevicePrimaryCtxRetain(void **ctx, int device), cuCtxSetCurrent(void *ctx);
extern int cuModuleLoadData(module_t *m, const void *image), cuModuleUnload(module_t m);
extern int cuModuleGetGlobal_v2(pointer_t *p, size_t *n, module_t m, const char *name);
extern int cuMemGetInfo_v2(size_t *free_bytes, size_t *total);

#define OK(call)                            \
	do {                                      \
		int ok_ = (call);                       \
		if (ok_) {                              \
			printf("failed %d %s\n", ok_, #call); \
			exit(1);                              \
		}                                       \
	} while (0)

static pointer_t variable(module_t m, const char *name)
{
	pointer_t p = 0;
	size_t n = 0;
	OK(cuModuleGetGlobal_v2(&p, &n, m, name));
	OK(p == 0 || n == 0);
	return p;
}

static size_t left(void)
{
	size_t left, total;
	OK(cuMemGetInfo_v2(&left, &total));
	return left;
}

int main(void)
{
	module_t a, b;
	void *ctx;
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	OK(cuModuleLoadData(&a, ""));
	OK(cuModuleLoadData(&b, ""));
	size_t before = left();
	pointer_t x = variable(a, "x"), y = variable(a, "y"), other = variable(b, "x");
	printf("apart %d\n", x != y && x != other && y != other);
	printf("same %d\n", variable(a, "x") == x && variable(a, "y") == y && variable(b, "x") == other);
	printf("held %zu\n", before - left());
	OK(cuModuleUnload(a));
	printf("stays %d\n", variable(b, "x") == other);
	OK(cuModuleUnload(b));
	printf("kept %zu\n", before - left());
	return 0;
}
