// Settings of the OpenMP runtime (openmp.h).
#include "rf/ops/openmp.h"

#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>
#include <omp.h>

namespace rf::ops {

std::string openmp_warning() {
  const int threads = at::get_num_threads(), limit = omp_get_thread_limit();
  if (threads == 1 || (limit >= threads && !omp_get_dynamic())) return "";
  const std::string got = limit < threads ? c10::str("OMP_THREAD_LIMIT=", limit, " for ", threads, " threads")
                                          : std::string("OMP_DYNAMIC=true");
  return c10::str(
      "[openmp] OpenMP must give every thread that torch asks for, or torch's products of bfloat16 are wrong, ", "got ",
      got, "; unset it, or set the number of threads to ", limit < threads ? limit : 1);
}

}  // namespace rf::ops
