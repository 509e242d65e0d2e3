//go:build ignore

/* Element types and reductions of the virtual libnccl. The sums are real, so
 * that a wrong ring shows as wrong numbers. Half precision goes through float,
 * rounding at each hop as NCCL does. */
#include "nccl_int.h"

#include <string.h>

size_t vgn_type_size(ncclDataType_t t)
{
	static const unsigned char size[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
	return (unsigned)t < ncclNumTypes ? size[t] : 0;
}

typedef struct {
	uint16_t bits;
} bf16;

static inline float bf16_float(bf16 v)
{
	uint32_t u = (uint32_t)v.bits << 16;
	float f;
	memcpy(&f, &u, sizeof f);
	return f;
}

static inline bf16 bf16_round(float f)
{
	uint32_t u;
	memcpy(&u, &f, sizeof u);
	if ((u & 0x7fffffff) > 0x7f800000) /* NaN stays one */
		return (bf16){(uint16_t)((u >> 16) | 0x40)};
	return (bf16){(uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16)};
}

#define SAME(v) (v)

/* One loop for each operation, so that the compiler can vectorise it. */
#define REDUCER(name, T, W, LOAD, STORE)                                                          \
	static void name(T *restrict a, const T *restrict b, size_t n, ncclRedOp_t op)                  \
	{                                                                                               \
		switch (op) {                                                                                 \
		case ncclProd:                                                                                \
			for (size_t i = 0; i < n; i++)                                                              \
				a[i] = STORE((W)(LOAD(a[i]) * LOAD(b[i])));                                               \
			break;                                                                                      \
		case ncclMax:                                                                                 \
			for (size_t i = 0; i < n; i++)                                                              \
				a[i] = LOAD(a[i]) > LOAD(b[i]) ? a[i] : b[i];                                             \
			break;                                                                                      \
		case ncclMin:                                                                                 \
			for (size_t i = 0; i < n; i++)                                                              \
				a[i] = LOAD(a[i]) < LOAD(b[i]) ? a[i] : b[i];                                             \
			break;                                                                                      \
		default: /* sum and average */                                                                \
			for (size_t i = 0; i < n; i++)                                                              \
				a[i] = STORE((W)(LOAD(a[i]) + LOAD(b[i])));                                               \
		}                                                                                             \
	}                                                                                               \
	static void name##_divide(T *a, size_t n, int by)                                               \
	{                                                                                               \
		for (size_t i = 0; i < n; i++)                                                                \
			a[i] = STORE((W)(LOAD(a[i]) / (W)by));                                                      \
	}

REDUCER(r_i8, int8_t, int8_t, SAME, SAME)
REDUCER(r_u8, uint8_t, uint8_t, SAME, SAME)
REDUCER(r_i32, int32_t, int32_t, SAME, SAME)
REDUCER(r_u32, uint32_t, uint32_t, SAME, SAME)
REDUCER(r_i64, int64_t, int64_t, SAME, SAME)
REDUCER(r_u64, uint64_t, uint64_t, SAME, SAME)
REDUCER(r_f16, _Float16, float, (float), (_Float16))
REDUCER(r_f32, float, float, SAME, SAME)
REDUCER(r_f64, double, double, SAME, SAME)
REDUCER(r_bf16, bf16, float, bf16_float, bf16_round)

void vgn_reduce(void *into, const void *from, size_t n, ncclDataType_t t, ncclRedOp_t op)
{
	switch (t) {
	case ncclInt8: r_i8(into, from, n, op); break;
	case ncclUint8: r_u8(into, from, n, op); break;
	case ncclInt32: r_i32(into, from, n, op); break;
	case ncclUint32: r_u32(into, from, n, op); break;
	case ncclInt64: r_i64(into, from, n, op); break;
	case ncclUint64: r_u64(into, from, n, op); break;
	case ncclFloat16: r_f16(into, from, n, op); break;
	case ncclFloat32: r_f32(into, from, n, op); break;
	case ncclFloat64: r_f64(into, from, n, op); break;
	case ncclBfloat16: r_bf16(into, from, n, op); break;
	default: break; /* the call was refused */
	}
}

void vgn_divide(void *a, size_t n, ncclDataType_t t, int by)
{
	switch (t) {
	case ncclInt8: r_i8_divide(a, n, by); break;
	case ncclUint8: r_u8_divide(a, n, by); break;
	case ncclInt32: r_i32_divide(a, n, by); break;
	case ncclUint32: r_u32_divide(a, n, by); break;
	case ncclInt64: r_i64_divide(a, n, by); break;
	case ncclUint64: r_u64_divide(a, n, by); break;
	case ncclFloat16: r_f16_divide(a, n, by); break;
	case ncclFloat32: r_f32_divide(a, n, by); break;
	case ncclFloat64: r_f64_divide(a, n, by); break;
	case ncclBfloat16: r_bf16_divide(a, n, by); break;
	default: break;
	}
}
