/* Status codes, element types and the error text of the C interface.
 *
 * Functions return an rf_status unless declared otherwise; none throws or aborts. After a status other than RF_OK the
 * calling thread's rf_last_error() reads "[where] rule, got value". Extents and strides are int64_t, strides in
 * elements.
 *
 * Argument structs start with struct_size = sizeof(the struct) as the caller was compiled; first set all other fields
 * to 0, as by `rf_norm_args args = {sizeof args}`. Fields may be added at the end in later versions of the library, and
 * 0 in them means the earlier behaviour: nothing changes for an older caller, and a newer caller is refused if a field
 * that the library does not know is not 0.
 */
#ifndef RF_STATUS_H_
#define RF_STATUS_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RF_API __attribute__((visibility("default")))
#else
#define RF_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rf_status {
  RF_OK = 0,
  RF_INVALID_ARGUMENT = 1,
  RF_OUT_OF_MEMORY = 2,
  RF_INTERNAL = 3,
  RF_NOT_IMPLEMENTED = 4
} rf_status;

typedef enum rf_dtype { RF_F32 = 1, RF_F64 = 2, RF_BF16 = 3, RF_F16 = 4 } rf_dtype;

/* Version of the library, "major.minor.patch". */
RF_API const char* rf_version(void);

/* Memory that the library keeps between calls: work space of threads, at most 64 MiB of it unused, and rows of rotary
 * tables, at most 256 MiB. Neither belongs to a result. */
typedef struct rf_memory {
  int64_t work_bytes, table_bytes;
} rf_memory;
RF_API rf_memory rf_memory_held(void);

/* Releases this memory, except memory that calls on other threads currently use. */
RF_API void rf_release_memory(void);

/* Text of the last error on this thread; "" without an error. Valid until the next call on this thread. */
RF_API const char* rf_last_error(void);

/* Name of the instruction set the kernels use on this machine, for example "AVX3", "AVX2", "NEON", or "ref" when
 * RF_KERNEL=ref in the environment selects the float64 reference loops; "AVX3_AMX" is AVX-512 with attention of
 * bfloat16 in AMX tiles, which Linux must allow this process. Any other value of RF_KERNEL is refused: here by "" and
 * rf_last_error(), and as an invalid argument by every call that runs kernels. */
RF_API const char* rf_target(void);

/* The same in the terms of processor vendors, for example "AVX-512 with bf16 products"; "" if rf_target() is "". */
RF_API const char* rf_target_description(void);

/* Restricts run-time dispatch to the named target ("AVX3_AMX", or Highway's "AVX3", "AVX2", "SSE4", ..), for tests; ""
 * or NULL: all targets of the machine; "ref": the float64 reference loops. An unknown name is refused and changes
 * nothing. Do not call it while kernels run on other threads. */
RF_API rf_status rf_set_target(const char* name);

#ifdef __cplusplus
}
#endif
#endif
