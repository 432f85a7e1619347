#include "parquet.h"
#include "rf/io/error.h"

namespace rf::data {

void read_parquet(const std::string& path, const std::string&,
                  const std::function<void(std::optional<std::string_view>)>&) {
  fail("input",
       "{} needs a build with Apache Arrow: install the package pyarrow in the Python environment (or Arrow's C++ "
       "library), then run cmake --preset release and build again",
       path);
}

}  // namespace rf::data
