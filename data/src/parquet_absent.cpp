// parquet.h and vectors.h in a build without Arrow.
#include "parquet.h"
#include "rf/data/vectors.h"
#include "rf/io/error.h"

namespace rf::data {

namespace {

[[noreturn]] void refuse(const std::string& what) {
  fail("input",
       "{} needs a build with Apache Arrow, which the package of pip is not: write it as .jsonl, or install pyarrow in "
       "the Python environment (or Arrow's C++ library), then run cmake --preset release and build",
       what);
}

}  // namespace

void read_parquet(const std::string& path, const ReadOptions&,
                  const std::function<void(std::optional<std::string_view>, std::string_view)>&) {
  refuse(path);
}

std::string arrow_version() { return {}; }

void check_parquet_output() { refuse("Parquet as output"); }

void write_parquet_vectors(const std::string& path, int64_t, int64_t, IdColumn, const std::function<VectorRow()>&) {
  refuse(path);
}

}  // namespace rf::data
